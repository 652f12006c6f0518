"""What a run says of itself before it begins: what it is, what a resume can promise, and what one should know."""

from pathlib import Path

from swell import ranks
from swell.config.run_config import RunConfig
from swell.display.panel import RunHeader
from swell.runs.build import SMALL_NETWORKS, BuiltRun

PROMISES = {
    "exact": "exact: a resumed run ends bit-identical to an uninterrupted one",
    "replay": "exact by replay: unfinished episodes are played again on resume and checked against the saved frames",
    "continuing": "continuing: weights, optimizer, scaler and counters are exact, unfinished episodes start anew",
}


def resume_promise(parts: BuiltRun) -> str:
    """What a restart of this run can promise; a GPU's arithmetic is not repeatable enough for more than continuing."""
    return PROMISES[parts.collector.envs.resume_tier if parts.device.type == "cpu" else "continuing"]


def process_notices(parts: BuiltRun) -> list[str]:
    """What one should know of a run of several processes."""
    count, local_count = ranks.place().count, ranks.place().local_count
    notices: list[str] = []
    if count > 1 and getattr(parts.collector.envs, "shares_generator", False):
        notices.append(
            "these envs draw from one generator in each process: a valid run, but not the one that one process would do"
        )
    if local_count > 1 and parts.device.type == "cpu" and parts.network_name in SMALL_NETWORKS:
        notices.append(
            f"{local_count} processes of one machine are slower than one with a network as small as "
            f"{parts.network_name}: adding up gradients takes longer than making them (docs/processes.md)"
        )
    return notices


def header_of(config: RunConfig, parts: BuiltRun, directory: Path) -> RunHeader:
    """What the display says above the curves."""
    words = {
        "adaptive": f"adaptive {config.min_horizon}..{parts.longest_horizon} ({config.interpolation})",
        "fixed": f"fixed {config.horizon}",
        "ramp": f"ramp from {config.ramp_from}" if config.ramp_from else f"ramp {config.ramp_horizons}",
        "noise-scale": f"noise scale {config.min_horizon}..{parts.longest_horizon}",
    }
    return RunHeader(
        env_id=config.env,
        algorithm=config.algorithm,
        network=f"{parts.network_name}, {parts.path}",
        num_parameters=sum(parameter.numel() for parameter in parts.learner.network.parameters()),
        scaler=f"{words.get(config.scaler, config.scaler)}, minibatches by {config.minibatch_rule}",
        adapts=config.adapts_horizon,
        min_horizon=config.min_horizon if config.adapts_horizon else 1,
        max_horizon=parts.longest_horizon,
        num_envs=config.num_envs,
        run_directory=str(directory),
        resume=resume_promise(parts).split(":")[0],
    )

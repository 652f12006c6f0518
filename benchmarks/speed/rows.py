"""How each row is measured."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib import metadata

from swell.config.run_config import RunConfig
from swell.errors import ConfigError
from swell.presets import make_config

from .commands import ONE_PROCESS, SWELL, Beside, WholeRun, peak_memory, run_seconds
from .limits import EnvsAlone, MatrixProducts, flops_per_step
from .machine import load
from .sides import CORES, Block, Ours, PlainPQN, Side
from .table import Bar, Comparison, Figure, Limit, Result, Skipped, share_at
from .turns import Contestant, RemoteSide, take_turns
from .workloads import WORKLOADS, Workload, missing

OURS = "ours"
STEADY, BRIEF = 0.25, 0.5
"""The pace of what does the same thing over and over, and of the many pairs of runs of ours."""

CADENCE = 50
"""K of the ABS paper: iterations from one reading to the next."""
NEVER = 10**9

HORIZON_CASES = {
    "cartpole-pqn": {},
    "minatar": {},
    "atari": {"num_envs": 32, "norm_over": "channels"},  # 32 envs, because 128 × 128 steps take half a minute
}
MEASURED_ENVS = {"CartPole-v1": None, "MinAtar/Breakout-v1": "minatar", "ALE/Breakout-v5": "ale_py"}
"""Each with the package that it needs."""
MEMORY_ITERATIONS, MEMORY_HORIZON = 3, 128


@dataclass(frozen=True)
class Rounds:
    """How many turns every side gets, how long they are, and whom to tell of them."""

    blocks: int
    seconds: float
    say: Callable[[str], None]


def workload_rows(workload: Workload, besides: Sequence[tuple[str, str]], rounds: Rounds) -> Iterator[Result]:
    """Ours, the peers and the limit of one workload, all in the same rounds."""
    lacking = missing(workload.needs)
    if lacking:
        yield Skipped(workload.name, lacking)
        return
    configs, refused = our_configs(workload)
    yield from refused
    if OURS not in configs:
        return
    config, before = configs[OURS], load()
    with ExitStack() as stack:
        rounds.say("  warming up")
        ours = {name: _remote(stack, name, partial(Ours, changed)) for name, changed in configs.items()}
        others: list[Contestant] = []
        for peer in workload.peers:
            lacking = missing("stable_baselines3") if peer == "sb3" else None
            if lacking:
                yield Skipped(f"{workload.name} beside SB3", lacking)
            else:
                others.append(_peer(stack, workload, peer))
        others += [Beside(workload, label, command) for label, command in besides]
        threads = ours[OURS].threads
        envs_alone = _remote(stack, "envs alone", partial(EnvsAlone, config), STEADY)
        peak = _remote(stack, "FLOP", partial(MatrixProducts, threads), STEADY)
        blocks = take_turns([*ours.values(), *others, envs_alone, peak], rounds.blocks, rounds.seconds, rounds.say)
    loads = (before, load())
    for name in ours:
        label = name.removeprefix(OURS).removeprefix(", ")
        for other in others:
            bar = None if label else workload.bar(other.label)
            rates = _rates(blocks[name]), _rates(blocks[other.label])
            yield Comparison(workload.name, label, rates[0], other.label, rates[1], "steps/s", bar, loads)
        if configs[name].backend != config.backend:
            continue  # the limit is that of other envs
        yield Limit(
            workload=workload.name,
            label=label,
            threads=threads,
            ours=_rates(blocks[name]),
            envs_alone=_rates(blocks[envs_alone.label]),
            peak=_rates(blocks[peak.label]),
            flops_per_step=flops_per_step(config),
            time_split=time_split(blocks[name]),
            bar=None if label else workload.limit_bar,
            load=loads,
        )
    yield from _whole_commands(workload, others, blocks, loads)


def our_configs(workload: Workload) -> tuple[dict[str, RunConfig], list[Skipped]]:
    """Of our run and its variants, and which of them this version of Swell or this machine refuses."""
    configs: dict[str, RunConfig] = {}
    refused: list[Skipped] = []
    for label, changes in {"": {}, **workload.variants}.items():
        try:
            configs[_joined(OURS, label)] = workload.config(**changes)
        except ConfigError as error:
            refused.append(Skipped(_joined(workload.name, label), str(error)))
    return configs, refused


def _joined(name: str, label: str) -> str:
    return f"{name}, {label}" if label else name


def _remote(stack: ExitStack, label: str, make: Callable[[], Side], pace: float = 1.0) -> RemoteSide:
    return stack.enter_context(closing(RemoteSide(label, make, pace)))


def _peer(stack: ExitStack, workload: Workload, peer: str) -> RemoteSide:
    if peer == "plain":
        tried = (CORES,) if workload.name == "atari" else (1, CORES)  # its images are worth every core
        side = _remote(stack, "plain loop", partial(PlainPQN, workload.name, tried))
    else:
        from .sb3_ppo import StableBaselines

        version = metadata.version("stable-baselines3")
        side = _remote(stack, f"SB3 {version}", partial(StableBaselines, workload.name))
    side.label += f", {side.threads} thread{'s' if side.threads > 1 else ''}"
    return side


def _whole_commands(
    workload: Workload, others: Sequence[Contestant], blocks: dict[str, list[Block]], loads: tuple[float, float]
) -> Iterator[Comparison]:
    for other in others:
        timed = [block.details for block in blocks[other.label] if "our_wall_seconds" in block.details]
        if timed:
            ours, theirs = ([details[name] for details in timed] for name in ("our_wall_seconds", "wall_seconds"))
            bar = workload.command_bar(other.label)
            yield Comparison(workload.name, "whole command", ours, other.label, theirs, "s", bar, loads)


def time_split(blocks: Sequence[Block]) -> dict[str, float]:
    """Shares of the time of our own blocks; the update is the rest."""
    told = {
        phase: statistics.median(block.details[phase] / block.seconds for block in blocks) for phase in ("env", "act")
    }
    return {**told, "update": 1.0 - sum(told.values())}


def horizon_rows(rounds: Rounds) -> Iterator[Result]:
    """What an env step costs at horizon 128 and at 16, on the same network."""
    for name, changes in HORIZON_CASES.items():
        workload = WORKLOADS[name]
        lacking = missing(workload.needs)
        if lacking:
            yield Skipped(f"horizon, {name}", lacking)
            continue
        config = workload.config(**changes)
        size = config.num_envs * config.horizon // config.minibatches
        for rule, words in (
            ("count", f"{config.minibatches} minibatches"),
            ("size", f"minibatches of {size}"),
        ):
            options = {**changes, "minibatch_rule": rule, "minibatch_size": size}
            before = load()
            blocks = _ours_in_turns(
                {str(length): workload.config(**options, horizon=length) for length in (128, 16)}, rounds
            )
            costs = {length: [1e6 / rate for rate in _rates(done)] for length, done in blocks.items()}
            yield Comparison(
                workload=name,
                ours_label=f"{config.num_envs} envs × 128, {words}",
                ours=costs["128"],
                other_label="horizon 16",
                other=costs["16"],
                unit="µs/step",
                bar=Bar("at most", 1.0),
                load=(before, load()),
                about="horizons",
            )


def measure_rows(rounds: Rounds) -> Iterator[Result]:
    """What measuring and scaling take of the time at K = 50, at the shortest horizon, where they take most.

    Nobody waits for 50 iterations of Atari: one side has a reading in every iteration, the other has none. The share
    is told twice, by the clock of the measurement itself and by the difference of the two sides, which includes all
    that the clock may have missed, and the noise.
    """
    bar = Bar("at most", 0.01)
    for env, package in MEASURED_ENVS.items():
        lacking = missing(package)
        if lacking:
            yield Skipped(f"measure, {env}", lacking)
            continue
        shortest = make_config(env).min_horizon
        adaptive = {"scaler": "adaptive", "max_horizon": shortest, "measure_every": 1}
        fixed = {"scaler": "fixed", "horizon": shortest, "measure_every": NEVER}
        before = load()
        blocks = _ours_in_turns({"adaptive": make_config(env, **adaptive), "fixed": make_config(env, **fixed)}, rounds)
        loads = (before, load())
        name = f"{env}, horizon {shortest}, one reading in {CADENCE} iterations"
        by_clock = [_measured_share(block) for block in blocks["adaptive"]]
        yield Figure("measure", f"{name}, by its own clock", by_clock, "percent", bar, loads)
        by_difference = [
            (with_reading - without) / without / CADENCE
            for with_reading, without in zip(
                map(_iteration_seconds, blocks["adaptive"]), map(_iteration_seconds, blocks["fixed"]), strict=True
            )
        ]
        yield Figure("measure", f"{name}, by difference", by_difference, "percent", bar, loads)


def _measured_share(block: Block) -> float:
    readings = iterations = block.details["iterations"]
    rest = block.seconds - block.details["measure"]
    return share_at(block.details["measure"] / readings, rest / iterations, CADENCE)


def _iteration_seconds(block: Block) -> float:
    return block.seconds / block.details["iterations"]


def memory_rows(rounds: Rounds) -> Iterator[Result]:
    """The peak of a whole command with the longest horizon of the paper."""
    workload = WORKLOADS["atari"]
    lacking = missing(workload.needs)
    if lacking:
        yield Skipped("memory", lacking)
        return
    num_envs, before = workload.config().num_envs, load()
    steps = MEMORY_ITERATIONS * num_envs * MEMORY_HORIZON
    rounds.say(f"  training for {steps:,} steps")
    peak = peak_memory(workload, steps, horizon=MEMORY_HORIZON, norm_over="channels")
    what = f"peak resident, Atari Breakout, {num_envs} envs × {MEMORY_HORIZON}, base network"
    yield Figure("memory", what, [peak], "gigabytes", Bar("at most", 1.5), (before, load()))


def rank_rows(rounds: Rounds) -> Iterator[Result]:
    """The only process of torchrun beside none: what several processes tell each other must cost one nothing.

    On the workload whose iterations are the shortest, so that whatever is done in each of them shows.
    """
    workload, before = WORKLOADS["cartpole-pqn"], load()
    launched, plain = WholeRun(workload, "under torchrun", ONE_PROCESS), WholeRun(workload, "swell train")
    blocks = take_turns([launched, plain], rounds.blocks, rounds.seconds, rounds.say)
    label, bar = "the one process of torchrun", Bar("at least", 0.98)
    rates = _rates(blocks[launched.label]), _rates(blocks[plain.label])
    yield Comparison(workload.name, label, rates[0], plain.label, rates[1], "steps/s", bar, (before, load()))


def start_rows(rounds: Rounds) -> Iterator[Result]:
    """How long one waits for the help, and to be told of a mistake."""
    cases = (
        ("swell --help", ["--help"], 0, 0.5),
        ("swell train with a bad flag", ["train", "CartPole-v1", "--no-such-flag"], 2, 2.0),
    )
    for what, words, exit_code, most in cases:
        command, before = [str(SWELL), *words], load()
        run_seconds(command, exit_code)
        seconds = [run_seconds(command, exit_code) for _ in range(max(rounds.blocks, 5))]
        yield Figure("start", what, seconds, "seconds", Bar("at most", most), (before, load()))


def _ours_in_turns(configs: dict[str, RunConfig], rounds: Rounds) -> dict[str, list[Block]]:
    with ExitStack() as stack:
        sides = [_remote(stack, label, partial(Ours, config), BRIEF) for label, config in configs.items()]
        return take_turns(sides, rounds.blocks, rounds.seconds, rounds.say)


def _rates(blocks: Sequence[Block]) -> list[float]:
    return [block.rate for block in blocks]

"""RunConfig: every choice of a run, one default each, checked once and completely. Imports nothing heavy."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from swell.config.contradictions import contradictions
from swell.config.validation import Between, did_you_mean, unmet_fields
from swell.errors import ConfigError

Count = Annotated[int, Between(1)]
Share = Annotated[float, Between(0, 1)]
Positive = Annotated[float, Between(0, low_open=True)]
Algorithm = Literal["pqn", "ppo", "ppo-ewma", "ppg", "ppg-ewma", "ess"]
SignalName = Literal["behavioral_divergence", "kl_divergence", "effective_sample_size", "gradient_noise_scale"]
InvarianceRule = Literal["learning-rate", "betas", "proximal", "advantages", "phase"]


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does. The defaults are the recipe for classic control; presets change them."""

    env: tyro.conf.Positional[str]
    """Environment: any Gymnasium id, `ALE/Pong-v5` or short `pong`, `MinAtar/Breakout-v1`, `procgen/coinrun`."""

    # The run.
    preset: str = "auto"
    """Recipe that sets the defaults of all other options; `auto` goes by algorithm and env. See `swell presets`."""
    algorithm: Algorithm = "pqn"
    """Learning algorithm; all but `pqn` also take continuous actions."""
    total_env_steps: Annotated[Count, tyro.conf.arg(name="steps")] = 200_000
    """Env steps to train for (agent steps; an Atari step is 4 frames). Schedules stretch with it."""
    seed: Annotated[int, Between(0, 2**31)] = 1
    """Seed of the weights, the envs, exploration, minibatch order and probes; each draws from its own generator."""
    label: str | None = None
    """What reports call this run and others like it; by default its algorithm and its scaler."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the network lives; `auto` takes a GPU if there is one."""
    threads: Annotated[int, Between(0, 4096)] = 0
    """CPU threads for the network and for Atari; 0 chooses: 1 for small networks, all cores for images."""
    memory_limit: Positive | None = None
    """MB that the process may come to; none is 90 % of what is free. Where the plan needs more, the update is done in
    smaller parts, then `max_horizon` is lowered; a run that cannot fit is refused."""

    # Environments.
    num_envs: Count = 32
    """Envs stepped together, E. More envs make each step cheaper and the batch E × horizon larger."""
    backend: Literal["auto", "gymnasium", "envpool"] = "auto"
    """Who steps the envs; `envpool` is an alternative for Atari and MuJoCo and the only one for Procgen."""
    async_envs: bool = False
    """One process per env; pays off only for envs slower than about a millisecond a step."""
    overlap: bool = False
    """Steps one half of the envs while the network acts on the other. For a GPU, or envs that wait for something; on a
    CPU whose cores are busy it costs time."""
    max_episode_steps: Count | None = None
    """Time limit in agent steps; None keeps the env's own (MinAtar: 5000). It truncates, it does not terminate."""
    episodic_life: bool = False
    """Atari: a lost life ends the episode for the learner (not for statistics). The PQN protocol sets it."""
    clip_rewards: bool = False
    """The learner sees only the sign of each reward; statistics keep the true score."""
    sticky_actions: Share = 0.0
    """Atari: chance that an env repeats the last action; Machado et al. use 0.25. MinAtar always has 0.1 or more."""
    noop_max: Annotated[int, Between(0, 1000)] = 30
    """Atari: up to this many random no-ops start each game."""
    reward_scale: Positive = 0.1
    """Factor on rewards before learning; smaller values keep targets near 1 where returns are large."""
    normalize_rewards: bool = False
    """Divides rewards by the running deviation of the discounted return and clips them to ±10; not for pqn."""
    normalize_observations: bool = False
    """Centres and scales observations by their running moments and clips them to ±10; not for pqn."""

    # The batch.
    scaler: Literal["adaptive", "fixed", "ramp", "noise-scale"] = "adaptive"
    """What sets the rollout horizon: the policy's stability, nothing, a given ramp, or the gradient noise scale."""
    horizon: Count = 32
    """Rollout length L of the fixed scaler; reference of the `scale` epoch rule and of `reference_batch`."""
    min_horizon: Count = 16
    """Shortest adaptive rollout. Lower learns faster while the policy moves, and costs more time per step."""
    max_horizon: Count = 64
    """Longest adaptive rollout. Memory is allocated for it at the start."""
    horizon_multiple: Count = 1
    """Every planned horizon is a multiple of it, as the bounds have to be. More means fewer different batch shapes, for
    compiled code and CUDA graphs."""
    ramp_horizons: tuple[Annotated[int, Between(1)], ...] = (16, 64)
    """Ramp scaler: horizons at evenly spaced moments of the run, interpolated between."""
    ramp_from: str | None = None
    """Ramp scaler: a run directory whose horizons are repeated step by step, deaf to this run's readings."""
    ramp_order: Literal["recorded", "shuffled"] = "recorded"
    """Ramp scaler with ramp_from: the horizons as they came, or the same ones in random order."""
    epochs: Count = 2
    """Passes over each rollout."""
    epoch_rule: Literal["constant", "scale", "proportional"] = "constant"
    """`scale` makes max(⌊epochs · L / horizon⌋, epochs) passes, as the public release of ABS does for PQN;
    `proportional` goes below `epochs` too, down to 1, as it does for PPO."""
    minibatch_rule: Literal["count", "size"] = "size"
    """`count`: a fixed number of minibatches, so longer rollouts mean fewer gradient steps per sample.
    `size`: minibatches of a fixed size, so gradient steps per sample stay the same while the batch grows."""
    minibatches: Count = 4
    """Minibatches per epoch under the `count` rule. More means more, noisier gradient steps."""
    minibatch_size: Count = 128
    """Samples in a minibatch under the `size` rule."""
    micro_batch_size: Count = 1024
    """Most samples in one forward pass; larger minibatches accumulate gradients, to the same sum but for rounding."""
    staleness: Annotated[int, Between(0, 1024)] = 0
    """Trains on rollouts that are so many iterations old, as a slow asynchronous learner would; not for pqn."""
    staleness_mode: Literal["behavior", "recent", "decoupled"] = "decoupled"
    """Old policy of ppo and ppg on stale data: the one that acted, the one before the update, or each in its role."""

    # Adaptive batch scaling.
    signal: Literal["auto", SignalName] = "auto"
    """What is measured; `auto` is the KL divergence for policies, behavioral divergence for pqn, or what the scaler
    needs. The thresholds below belong to the signal."""
    measure_every: Count = 10
    """K: a reading of the signal every so many iterations (or env steps, see measure_unit)."""
    measure_unit: Literal["iterations", "env-steps"] = "iterations"
    """What measure_every counts."""
    probe_states: Count = 2048
    """Most states that a reading looks at, drawn from the rollout just trained on."""
    window: Literal["iteration", "interval"] = "iteration"
    """A reading compares the policy across one update, or since the reading before."""
    action_tolerance: Positive = 0.1
    """Behavioral divergence of continuous policies: moves of the mean by fewer standard deviations do not count."""
    calm_reading: Positive = 0.05
    """δ_min: readings at or below it ask for the longest horizon. (At or above it for effective_sample_size.)"""
    volatile_reading: Positive = 0.95
    """δ_max: readings at or above it ask for the shortest horizon. (At or below it for effective_sample_size.)"""
    interpolation: Literal["log", "linear"] = "log"
    """How the horizon follows readings between the two."""
    smoothing: Annotated[float, Between(0, 1, low_open=True)] = 0.1
    """How far each reading moves the horizon towards its target; 1 jumps."""
    history: Count = 1
    """Readings averaged before they count. More is steadier and slower."""
    warmup_readings: Annotated[int, Between(0)] = 0
    """The horizon stays at its minimum until so many readings were taken."""
    rounding: Literal["nearest", "truncate"] = "nearest"
    """`truncate` reproduces the public release of ABS, whose horizon stalls at 55 of 64 and 119 of 128."""
    noise_microbatches: Annotated[int, Between(2)] = 16
    """Gradient noise scale: into how many shuffled parts a rollout is split. More is surer and takes longer."""
    noise_averaging: Annotated[float, Between(0, 0.9999)] = 0.9
    """Gradient noise scale: how slowly the averages of noise and signal follow new readings; 0 takes each as it is."""
    batch_per_noise_scale: Positive = 1.0
    """Noise-scale scaler: samples per gradient step for each unit of the noise scale. Lower is cheaper in data."""

    # Learning.
    learning_rate: Positive = 5e-4
    """Step size of RAdam (pqn) or Adam, as tuned at `reference_batch`."""
    anneal_learning_rate: bool = True
    """Lets the learning rate fall linearly to 0 over the run."""
    learning_rate_rule: Literal["constant", "sqrt"] = "constant"
    """`sqrt` multiplies it by √(batch / (num_envs · horizon)) while the batch moves."""
    epsilon_start: Share = 1.0
    """Share of random actions at the start."""
    epsilon_end: Share = 0.05
    """Share of random actions after the decay."""
    epsilon_fraction: Share = 0.3
    """Part of the run over which exploration decays."""
    discount: Share = 0.99
    """γ: how much a reward one step later is worth."""
    trace_decay: Share = 0.95
    """λ: 0 trusts the next value alone, 1 the observed rewards alone."""
    max_gradient_norm: Positive | None = 10.0
    """Longer gradients are scaled down to this norm; none never does."""
    loss_coefficient: Positive = 1.0
    """Factor on the squared error: 1 as CleanRL and ABS, 0.5 as the PQN authors. It matters for the clipping."""
    truncation_is_termination: bool = False
    """Treats time limits as terminal states, as the reference implementations do; wrong, but comparable."""

    # Policy optimization: all but pqn.
    clip_range: Annotated[float, Between(0, 1)] = 0.2
    """ε: how far the policy's ratio to the proximal policy is rewarded. 0 does not clip (ppo-ewma, ppg only)."""
    kl_penalty: Annotated[float, Between(0)] = 0.0
    """β of the penalty ½ (log ratio)² for leaving the proximal policy; instead of clipping or beside it."""
    value_coefficient: Annotated[float, Between(0)] = 0.5
    """Factor on the squared error of the values. The 0.5 of CleanRL, which also halves the square, is 0.25 here."""
    value_clip_range: Positive | None = None
    """Clips each change of a value to this range, as PPO's first code did; ties the update to the acting policy."""
    entropy_coefficient: Annotated[float, Between(0)] = 0.01
    """Bonus for randomness; more explores for longer."""
    advantage_norm: Literal["none", "minibatch", "batch"] = "minibatch"
    """Over what advantages are brought to mean 0 and deviation 1."""
    target_kl: Positive | None = None
    """Makes no further pass over a rollout once the policy has moved this far from the proximal one (ppo, ess)."""
    adam_epsilon: Positive = 1e-5
    """Added to Adam's denominator; a large one bends the square-root rule for the learning rate towards linear."""
    adam_beta1: Annotated[float, Between(0, 0.99999)] = 0.9
    """Adam's decay of the mean gradient, as tuned at `reference_batch`."""
    adam_beta2: Annotated[float, Between(0, 0.9999999)] = 0.999
    """Adam's decay of the squared gradient, as tuned at `reference_batch`."""
    proximal_decay: Annotated[float, Between(0, 0.999999)] = 0.888889
    """ppo-ewma, ppg-ewma: decay per gradient step of the averaged policy; 8/9 has a mean age of 8 steps."""
    advantage_decay: Annotated[float, Between(0, 0.999999)] = 0.0
    """ppo-ewma, ppg: decay per iteration of the moments that normalise advantages; 0 uses the current batch alone."""
    phase_env_steps: Count = 65_536
    """ppg: env steps between two auxiliary phases. Their observations are kept, so it costs memory."""
    auxiliary_epochs: Annotated[int, Between(0)] = 6
    """ppg: passes over a phase that distil values into the policy's network; 0 leaves plain policy phases."""
    auxiliary_minibatch_size: Count = 2048
    """ppg: samples in a minibatch of the auxiliary phase."""
    clone_coefficient: Annotated[float, Between(0)] = 1.0
    """ppg: how strongly the auxiliary phase holds the policy where it was."""
    ess_scope: Literal["minibatch", "batch"] = "batch"
    """ess: over what the effective sample size is taken; small minibatches over-estimate it."""
    ess_penalty: Literal["exact", "k3"] = "exact"
    """ess: the pull towards the policy that acted, by the exact KL divergence or by an estimate from the action."""

    # Batch-size invariance.
    invariance: Literal["off", "on"] = "off"
    """`on` adjusts learning rate, averages and phases to the batch at hand, so that its size matters little."""
    invariance_rules: tuple[InvarianceRule, ...] = ("learning-rate", "proximal", "advantages", "phase")
    """Which of the rules are on."""
    reference_batch: Count | None = None
    """Transitions per rollout at which the hyper-parameters were tuned; none means num_envs × horizon."""

    # The network.
    network: Literal["auto", "mlp", "minatar-cnn", "nature-cnn", "impala-cnn", "pqn-l", "pqn-xl"] = "auto"
    """`auto` goes by the shape of an observation."""
    hidden: tuple[Annotated[int, Between(1)], ...] = (128, 128)
    """Widths of the MLP's layers."""
    activation: Literal["relu", "tanh"] = "relu"
    """Nonlinearity of the MLP."""
    architecture: Literal["dual", "shared", "detached"] = "dual"
    """Policy and value: two networks, one network, or one whose values cannot change it. Not for pqn."""
    initial_log_std: Annotated[float, Between(-10, 10)] = 0.0
    """Continuous actions: logarithm of the standard deviation at the start; it is learned, the same in all states."""
    norm_over: Literal["channels", "map", "none"] = "channels"
    """What LayerNorm averages in an image: each pixel's channels (PQN authors) or the map (CleanRL); none omits it."""
    multi_skip_head: Literal["original", "release"] = "original"
    """PQN-L and PQN-XL: the head of the original paper, or the LayerNorm over Q-values of the public release of ABS."""

    # Evaluation and saving.
    evaluate_every: Annotated[int, Between(0)] = 0
    """Env steps between greedy evaluations; 0 evaluates only at the end."""
    evaluation_episodes: Annotated[int, Between(0)] = 100
    """Whole greedy episodes per evaluation; 0 never evaluates."""
    target_return: float | None = None
    """Stops the run when an evaluation reaches this mean return."""
    checkpoint_every: Annotated[int, Between(0)] = 0
    """Env steps between checkpoints; 0 saves 20 times a run."""
    checkpoint_minutes: Positive = 10.0
    """A checkpoint is also written when so many minutes have passed since the last."""

    def __post_init__(self) -> None:
        unmet = unmet_fields(self)
        faults = [f"{name} must be {expected}, got {getattr(self, name)!r}" for name, expected in unmet.items()]
        faults += contradictions(self, unmet)
        if faults:
            raise ConfigError(*faults)

    @property
    def longest_horizon(self) -> int:
        """The horizon that buffers must hold, where the config alone decides it."""
        if self.scaler == "ramp":
            return max(self.ramp_horizons)
        return self.horizon if self.scaler == "fixed" else self.max_horizon

    @property
    def adapts_horizon(self) -> bool:
        """Whether readings move the horizon, between `min_horizon` and `max_horizon`."""
        return self.scaler in ("adaptive", "noise-scale")

    @property
    def signal_name(self) -> SignalName:
        """The signal that `auto` stands for."""
        if self.signal != "auto":
            return self.signal
        if self.scaler == "noise-scale":
            return "gradient_noise_scale"
        return "behavioral_divergence" if self.algorithm == "pqn" else "kl_divergence"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def config_from_dict(values: dict[str, Any]) -> RunConfig:
    """The inverse of `to_dict`, through JSON too; unknown names are faults."""
    names = [field.name for field in dataclasses.fields(RunConfig)]
    unknown = [name for name in values if name not in names]
    if unknown:
        raise ConfigError(*(f"unknown option {name}{did_you_mean(name, names)}" for name in unknown))
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return RunConfig(**fields)

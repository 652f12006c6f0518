"""Settings of the learners, one class an algorithm: exactly the options that it reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from swell.config.validation import Between, ChoiceOrImport, Count, Fault, Positive, Settings, Share

InvarianceRule = Literal["learning-rate", "betas", "proximal", "advantages", "phase"]
AdvantageNorm = Literal["none", "minibatch", "batch"]
StalenessMode = Literal["behavior", "recent", "decoupled"]
Activation = Literal["relu", "tanh"]
NormOver = Literal["channels", "map", "none"]
MultiSkipHead = Literal["original", "release"]
ComputePath = Literal["auto", "autograd", "compiled"]
Precision = Literal["float32", "bfloat16"]
Architecture = Literal["dual", "shared", "detached"]
NetworkName = Annotated[
    str, ChoiceOrImport("auto", "mlp", "minatar-cnn", "nature-cnn", "impala-cnn", "pqn-l", "pqn-xl")
]


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings):
    """The network."""

    network: NetworkName = "auto"
    """`auto` goes by the shape of an observation; `module:function` makes an encoder of your own."""
    hidden: tuple[Count, ...] = (128, 128)
    """Widths of the MLP's layers."""
    activation: Activation = "relu"
    """Nonlinearity of the MLP."""
    norm_over: NormOver = "channels"
    """What LayerNorm averages in an image: each pixel's channels (PQN authors) or the map (CleanRL); none omits it."""


@dataclass(frozen=True, kw_only=True)
class ReturnSettings(Settings):
    """How rewards become what is learned from."""

    reward_scale: Positive = 0.1
    """Factor on rewards before learning; smaller values keep targets near 1 where returns are large."""
    discount: Share = 0.99
    """γ: how much a reward one step later is worth."""
    trace_decay: Share = 0.95
    """λ: 0 trusts the next value alone, 1 the observed rewards alone."""
    truncation_is_termination: bool = False
    """Treats time limits as terminal states, as the reference implementations do; wrong, but comparable."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings(Settings):
    """How gradients become steps."""

    learning_rate: Positive = 5e-4
    """Step size of RAdam (pqn) or Adam, as tuned at `reference_batch`."""
    anneal_learning_rate: bool = True
    """Lets the learning rate fall linearly to 0 over the run."""
    max_gradient_norm: Positive | None = 10.0
    """Longer gradients are scaled down to this norm; none never does."""
    micro_batch_size: Count = 1024
    """Most samples in one forward pass; larger minibatches accumulate gradients, to the same sum but for rounding."""


@dataclass(frozen=True, kw_only=True)
class InvarianceSettings(Settings):
    """Batch-size invariance (arXiv 2110.00641)."""

    invariance: Literal["off", "on"] = "off"
    """`on` adjusts learning rate, averages and phases to the batch at hand, so that its size matters little."""
    invariance_rules: tuple[InvarianceRule, ...] = ("learning-rate", "proximal", "advantages", "phase")
    """Which of the rules are on."""
    reference_batch: Count | None = None
    """Transitions per rollout at which the hyper-parameters were tuned; none means num_envs × horizon."""

    def contradictions(self) -> Iterator[Fault]:
        if self.invariance == "on" and self.invariance_rules == ():
            names = ("invariance", "invariance_rules")
            yield names, "invariance_rules must name at least one rule with invariance on, got ()"


@dataclass(frozen=True, kw_only=True)
class ComputeSettings(Settings):
    """How it is computed."""

    path: ComputePath = "auto"
    """Compiled kernels (extra `fast`), for plain networks on a CPU, or autograd, for all; `auto` takes the faster."""
    precision: Precision = "float32"
    """`bfloat16` passes images through the network in half precision; weights, targets and optimizer stay float32."""

    def contradictions(self) -> Iterator[Fault]:
        if self.path == "compiled" and self.precision == "bfloat16":
            yield ("path", "precision"), "precision must be float32 on the compiled path, got bfloat16"


@dataclass(frozen=True, kw_only=True)
class LearnerSettings(OptimizerSettings, ReturnSettings, InvarianceSettings, ComputeSettings, NetworkSettings):
    """What every learner reads."""


@dataclass(frozen=True, kw_only=True)
class PQNSettings(LearnerSettings):
    """PQN (arXiv 2407.04811)."""

    epsilon_start: Share = 1.0
    """Share of random actions at the start."""
    epsilon_end: Share = 0.05
    """Share of random actions after the decay."""
    epsilon_fraction: Share = 0.3
    """Part of the run over which exploration decays."""
    loss_coefficient: Positive = 1.0
    """Factor on the squared error: 1 as CleanRL and ABS, 0.5 as the PQN authors. It matters for the clipping."""
    learning_rate_rule: Literal["constant", "sqrt"] = "constant"
    """`sqrt` multiplies it by √(batch / (num_envs · horizon)) while the batch moves."""
    multi_skip_head: MultiSkipHead = "original"
    """PQN-L and PQN-XL: the head of the original paper, or the LayerNorm over Q-values of the public release of ABS."""

    def contradictions(self) -> Iterator[Fault]:
        if self.invariance == "on" and self.learning_rate_rule == "sqrt":
            names = ("invariance", "learning_rate_rule")
            yield names, "learning_rate_rule must be constant with invariance on, which has that rule, got sqrt"


@dataclass(frozen=True, kw_only=True)
class PolicySettings(LearnerSettings):
    """What every learner of a stochastic policy reads."""

    normalize_rewards: bool = False
    """Divides rewards by the running deviation of the discounted return and clips them to ±10; not for pqn."""
    normalize_observations: bool = False
    """Centres and scales observations by their running moments and clips them to ±10; not for pqn."""
    value_coefficient: Annotated[float, Between(0)] = 0.5
    """Factor on the squared error of the values. The 0.5 of CleanRL, which also halves the square, is 0.25 here."""
    value_clip_range: Positive | None = None
    """Clips each change of a value to this range, as PPO's first code did; ties the update to the acting policy."""
    entropy_coefficient: Annotated[float, Between(0)] = 0.01
    """Bonus for randomness; more explores for longer."""
    advantage_norm: AdvantageNorm = "batch"
    """Over what advantages are brought to mean 0 and deviation 1; `minibatch` is for ppo and ess."""
    adam_epsilon: Positive = 1e-5
    """Added to Adam's denominator; a large one bends the square-root rule for the learning rate towards linear."""
    adam_beta1: Annotated[float, Between(0, 0.99999)] = 0.9
    """Adam's decay of the mean gradient, as tuned at `reference_batch`."""
    adam_beta2: Annotated[float, Between(0, 0.9999999)] = 0.999
    """Adam's decay of the squared gradient, as tuned at `reference_batch`."""
    staleness: Annotated[int, Between(0, 1024)] = 0
    """Trains on rollouts that are so many iterations old, as a slow asynchronous learner would; not for pqn."""
    architecture: Architecture = "dual"
    """Policy and value: two networks, one network, or one whose values cannot change it. Not for pqn."""
    initial_log_std: Annotated[float, Between(-10, 10)] = 0.0
    """Continuous actions: logarithm of the standard deviation at the start; it is learned, the same in all states."""


@dataclass(frozen=True, kw_only=True)
class EarlyStoppingSettings(PolicySettings):
    """Learners that may end an update before its last pass: ppo and ess."""

    target_kl: Positive | None = None
    """Makes no further pass over a rollout once the policy has moved this far from the proximal one (ppo, ess)."""


@dataclass(frozen=True, kw_only=True)
class ClippedSettings(PolicySettings):
    """Learners with a clip range: all but ess."""

    clip_range: Annotated[float, Between(0, 1)] = 0.2
    """ε: how far the policy's ratio to the proximal policy is rewarded. 0 does not clip (ppo-ewma, ppg only)."""


@dataclass(frozen=True, kw_only=True)
class StaleAnchorSettings(PolicySettings):
    """Learners whose proximal policy is an old one: ppo and ppg."""

    staleness_mode: StalenessMode = "decoupled"
    """Old policy of ppo and ppg on stale data: the one that acted, the one before the update, or each in its role."""


@dataclass(frozen=True, kw_only=True)
class PPOSettings(EarlyStoppingSettings, ClippedSettings, StaleAnchorSettings):
    """PPO (arXiv 1707.06347)."""

    def contradictions(self) -> Iterator[Fault]:
        if self.clip_range == 0:
            yield ("clip_range",), "clip_range must be more than 0 for ppo, got 0; ppo-ewma can go without"


@dataclass(frozen=True, kw_only=True)
class ESSSettings(EarlyStoppingSettings):
    """The ESS-adaptive objective (arXiv 2605.12380)."""

    ess_scope: Literal["minibatch", "batch"] = "batch"
    """ess: over what the effective sample size is taken; small minibatches over-estimate it."""
    ess_penalty: Literal["exact", "k3"] = "exact"
    """ess: the pull towards the policy that acted, by the exact KL divergence or by an estimate from the action."""


@dataclass(frozen=True, kw_only=True)
class DecoupledSettings(ClippedSettings):
    """The decoupled objective (arXiv 2110.00641): ppo-ewma, ppg and ppg-ewma."""

    kl_penalty: Annotated[float, Between(0)] = 0.0
    """β of the penalty ½ (log ratio)² for leaving the proximal policy; instead of clipping or beside it."""
    advantage_decay: Annotated[float, Between(0, 0.999999)] = 0.0
    """ppo-ewma, ppg: decay per iteration of the moments that normalise advantages; 0 uses the current batch alone."""

    def contradictions(self) -> Iterator[Fault]:
        if self.advantage_norm == "minibatch":
            yield (
                ("advantage_norm",),
                "advantage_norm must be batch or none for ppo-ewma, ppg and ppg-ewma, got minibatch",
            )


@dataclass(frozen=True, kw_only=True)
class PPOEWMASettings(DecoupledSettings):
    """PPO-EWMA (arXiv 2110.00641)."""

    proximal_decay: Annotated[float, Between(0, 0.999999)] = 0.888889
    """ppo-ewma, ppg-ewma: decay per gradient step of the averaged policy; 8/9 has a mean age of 8 steps."""


@dataclass(frozen=True, kw_only=True)
class PhaseSettings(DecoupledSettings):
    """The phases of PPG (arXiv 2009.04416)."""

    phase_env_steps: Count = 65_536
    """ppg: env steps between two auxiliary phases. Their observations are kept, so it costs memory."""
    auxiliary_epochs: Annotated[int, Between(0)] = 6
    """ppg: passes over a phase that distil values into the policy's network; 0 leaves plain policy phases."""
    auxiliary_minibatch_size: Count = 2048
    """ppg: samples in a minibatch of the auxiliary phase."""
    clone_coefficient: Annotated[float, Between(0)] = 1.0
    """ppg: how strongly the auxiliary phase holds the policy where it was."""


@dataclass(frozen=True, kw_only=True)
class PPGSettings(PhaseSettings, StaleAnchorSettings):
    """PPG (arXiv 2009.04416)."""


@dataclass(frozen=True, kw_only=True)
class PPGEWMASettings(PhaseSettings, PPOEWMASettings):
    """PPG-EWMA (arXiv 2110.00641): PPG whose policy phase is that of PPO-EWMA."""

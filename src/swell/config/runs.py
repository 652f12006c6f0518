"""Settings of a run as a whole, of its evaluations and of its envs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from swell.config.own_envs import env_name, is_assignment, kwargs_words, texts_of, wrapper_names
from swell.config.validation import Between, Count, Fault, Positive, Settings, Share, is_import

MOST_EPISODES = 100
"""Of an evaluation of which nobody has said how long it is to be."""

Algorithm = Literal["pqn", "ppo", "ppo-ewma", "ppg", "ppg-ewma", "ess"]
Backend = Literal["auto", "gymnasium", "envpool", "compiled"]
"""Who runs the envs. `auto` is ale-py for Atari, EnvPool for Procgen, which nobody else has, Gymnasium for the rest;
never `compiled`, which is another implementation."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The run as a whole."""

    preset: str = "auto"
    """Recipe that sets the defaults of all other options: a name that `swell presets` lists, `auto`, which goes by
    algorithm and env, or a file of your own, FILE.toml."""
    algorithm: Algorithm = "pqn"
    """Learning algorithm; all but `pqn` also take continuous actions."""
    total_env_steps: Annotated[Count, tyro.conf.arg(name="steps")] = 200_000
    """Env steps to train for (agent steps; an Atari step is 4 frames). Schedules stretch with it."""
    seed: Annotated[int, Between(0, 2**31)] = 1
    """Seed of the weights, the envs, exploration, minibatch order and probes; each draws from its own generator."""
    label: str | None = None
    """What reports call this run and others like it; by default its algorithm and its scaler."""
    track: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Where the numbers go beside the run's own logs; each is an extra. TensorBoard is also written unasked where it is
    installed."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the network lives; `auto` takes a GPU if there is one."""
    threads: Annotated[int, Between(0, 4096)] = 0
    """CPU threads of the network and of Atari; 0 chooses: 2 for kernels, else 1 for small networks, all for images."""
    weights_from: str | None = None
    """A run directory whose trained network, with its normalisation, this run starts from; all else starts anew."""
    memory_limit: Positive | None = None
    """MB that the process may come to; none is 90 % of what is free. Where the plan needs more, the update is done in
    smaller parts, then `max_horizon` is lowered; a run that cannot fit is refused."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Settings):
    """When a run is scored and saved."""

    evaluate_every: Annotated[int, Between(0)] = 0
    """Env steps between greedy evaluations; 0 evaluates only at the end."""
    evaluation_episodes: Annotated[int, Between(0)] | None = None
    """Whole greedy episodes per evaluation; none is 100, or down to 10 where these would take more steps than the
    training. 0 never evaluates."""
    max_evaluation_steps: Count | None = None
    """Steps after which an evaluation cuts an episode off and counts it as it stands; none is 27,000, or
    `max_episode_steps` where that is more."""
    target_return: float | None = None
    """Stops the run when an evaluation reaches this mean return."""
    checkpoint_every: Annotated[int, Between(0)] = 0
    """Env steps between checkpoints; 0 saves 20 times a run."""
    checkpoint_minutes: Positive = 10.0
    """A checkpoint is also written when so many minutes have passed since the last."""

    @property
    def most_evaluation_episodes(self) -> int:
        return MOST_EPISODES if self.evaluation_episodes is None else self.evaluation_episodes

    def contradictions(self) -> Iterator[Fault]:
        for needed in ("evaluation_episodes", "evaluate_every"):
            if self.target_return is not None and getattr(self, needed) == 0:
                names = ("target_return", needed)
                yield names, f"target_return needs {needed} of at least 1, got {self.target_return} and 0"


@dataclass(frozen=True, kw_only=True)
class EnvSettings(Settings):
    """The envs, and what of them the learner sees."""

    env: tyro.conf.Positional[str] = field(kw_only=False)
    """Environment: any Gymnasium id, `ALE/Pong-v5` or short `pong`, `MinAtar/Breakout-v1`, `procgen/coinrun`, or
    `module:function` (or class) that makes one of your own."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of a Gymnasium env or of your function, as `gravity=-5.0 continuous=true`; a dict in Python."""
    wrappers: tuple[str, ...] = ()
    """Gymnasium wrappers around each env, the innermost first: `module:name`, called with the env."""
    num_envs: Count = 32
    """Envs stepped together, E. More envs make each step cheaper and the batch E × horizon larger."""
    backend: Backend = "auto"
    """Who steps the envs; `envpool` is an alternative for Atari and MuJoCo and the only one for Procgen, `compiled`
    one for classic control, with extra `fast`."""
    async_envs: bool = False
    """One process per env; pays off only for envs slower than about a millisecond a step."""
    env_timeout: Annotated[float, Between(0)] = 60.0
    """Seconds that one step or reset of an env may take before the run stops and says that it hangs; 0 waits on."""
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

    def __post_init__(self) -> None:
        self.name_own_parts()
        super().__post_init__()

    def name_own_parts(self) -> None:
        """What Python hands in as objects becomes names, which files and command lines can hold."""
        for name, named in (("env", env_name), ("env_kwargs", kwargs_words), ("wrappers", wrapper_names)):
            object.__setattr__(self, name, named(getattr(self, name)))

    def contradictions(self) -> Iterator[Fault]:
        for word in texts_of(self.env_kwargs):
            if not is_assignment(word):
                yield ("env_kwargs",), f"env_kwargs must be key=value, got {word!r}"
        for name in texts_of(self.wrappers):
            if not is_import(name):
                yield ("wrappers",), f"wrappers must be module:name each, got {name!r}; what has no name, put into env"

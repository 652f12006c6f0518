"""Language models: TRL's GRPO trainer with the ESS objective and a batch that moves, one import away.

    from swell.llm import GRPOConfig, GRPOTrainer

in place of `from trl import GRPOConfig, GRPOTrainer`. Needs the extra `trl`. No other package imports this one; the
command line does when it is asked to.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell.llm.config import GRPOConfig as GRPOConfig
    from swell.llm.objective import (
        ess_token_losses as ess_token_losses,
        token_ratios as token_ratios,
        verl_policy_loss as verl_policy_loss,
    )
    from swell.llm.trainer import GRPOTrainer as GRPOTrainer

_HOMES = {
    "GRPOConfig": "config",
    "GRPOTrainer": "trainer",
    "ess_token_losses": "objective",
    "token_ratios": "objective",
    "verl_policy_loss": "objective",
}
__all__ = ["GRPOConfig", "GRPOTrainer", "ess_token_losses", "token_ratios", "verl_policy_loss"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

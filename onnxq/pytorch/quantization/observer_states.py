"""States of a prepared model's observers, apart from its weights: to be saved, and loaded."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from onnxq.errors import ModelError, listed
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.quantization.uniform_observer import ObserverBase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


def get_observer_state_dict(mod: nn.Module) -> OrderedDict[str, Tensor]:
    """The entries of the state_dict that belong to observers and FakeQuantize modules.

    Args:
        mod: prepared.
    """
    prefixes = _prefixes(mod)
    state = mod.state_dict()
    return OrderedDict((key, state[key]) for key in state if key.startswith(prefixes))


def load_observer_state_dict(mod: nn.Module, obs_dict: Mapping[str, Tensor]) -> None:
    """Gives observers and FakeQuantize modules what `get_observer_state_dict` returned.

    Args:
        mod: prepared in the same way; changed in place, weights stay.
        obs_dict: by the names of the state_dict.

    Raises:
        ModelError: entries are missing, or belong to nothing in it.
    """
    found = mod.load_state_dict(obs_dict, strict=False)
    missing = [key for key in found.missing_keys if key.startswith(_prefixes(mod))]
    for wrong, what in ((missing, "are missing"), (found.unexpected_keys, "belong to no observer")):
        if wrong:
            raise ModelError(
                f"load_observer_state_dict: {listed(wrong)} {what}. Prepare the model as the one "
                "whose observers were saved."
            )


def _prefixes(mod: nn.Module) -> tuple[str, ...]:
    parts = mod.named_modules()
    return tuple(f"{name}." for name, one in parts if isinstance(one, Observing | ObserverBase))

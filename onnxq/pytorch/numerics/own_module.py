"""Specs of observers and fake-quantizers that are modules of a user's own, as torch documents them.

    class Mine(tq.MinMaxObserver):            class Noisy(nn.Module):
        def calculate_qparams(self):              def forward(self, x): ...    rounded, or as it is
            ...                                   def calculate_qparams(self): return scale, zero

Their own forward sees what passes, and their own calculate_qparams says what is deployed. `dtype`,
`qscheme`, `quant_min`, `quant_max` and `ch_axis` are read where the module has them.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from onnxq.errors import QConfigError, kind_of
from onnxq.observers import MinMaxObserver, Observer, ObserverSpec, PerChannelMinMaxObserver


@dataclass(frozen=True, slots=True)
class ModuleSpec(ObserverSpec):
    """The class of a user's module, with arguments; calling it describes the module's integers."""

    kind: type[nn.Module] = nn.Identity
    keywords: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def module(self) -> Any:
        """A new module that has seen nothing."""
        made = self.kind(**self.keywords)
        if not isinstance(made, nn.Module) or not hasattr(made, "calculate_qparams"):
            raise QConfigError(
                f"{self.name} makes {kind_of(made)}; wanted a module with forward and "
                "calculate_qparams, which returns a scale and a zero point."
            )
        return made

    def __call__(self) -> Observer:
        """An observer of the same integers, which decides nothing."""
        made = self.module()
        scheme = getattr(made, "qscheme", torch.per_tensor_affine)
        described: dict[str, Any] = {
            name: getattr(made, name, None) for name in ("quant_min", "quant_max")
        }
        described |= {"dtype": getattr(made, "dtype", torch.quint8), "qscheme": scheme}
        if "per_channel" in str(getattr(scheme, "value", scheme)):
            axis = int(getattr(made, "ch_axis", 0))
            return PerChannelMinMaxObserver.with_args(**described, ch_axis=axis)()
        return MinMaxObserver.with_args(**described)()

    def with_args(self, /, **kwargs: object) -> ObserverSpec:
        """This spec with some arguments of the module's replaced, of those that it takes."""
        taken = {name: value for name, value in kwargs.items() if self.accepts(name)}
        return replace(self, keywords={**self.keywords, **taken})

    def accepts(self, argument: str) -> bool:
        """Whether what makes the module takes that argument."""
        return argument in inspect.signature(self.kind).parameters

    def to_dict(self) -> dict[str, object]:
        """Nothing: a module has no form in a file."""
        raise QConfigError(f"{self.name} is a module of your own, which no file can name.")


def is_observer(kind: object) -> bool:
    """Whether a class is an observer by torch's contract: it returns what it sees as it is."""
    return any(base.__name__ == "ObserverBase" for base in getattr(kind, "__mro__", ()))

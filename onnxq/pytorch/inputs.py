"""Example inputs of a module: where they come from, and how they bind to the names of its forward.

`export` traces the module on example inputs and checks the result on them. On the command line they
come from, in this order:

    --samples FILE.npz                    real arrays, named by input
    --input image=float32[4,3,32,32]      random ones, seeded
    the module or its file                `example_inputs`, or Lightning's `example_input_array`
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError, nearest
from onnxq.samples.columns import why_unreadable

if TYPE_CHECKING:
    from pathlib import Path

Inputs = torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]

_SPEC = re.compile(r"(?P<name>\w+)=(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]")
_FLOATS = {"float16": torch.float16, "float32": torch.float32}
_INTEGERS = {"int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8, "bool": torch.bool}
_SEED = 0


@dataclass(frozen=True, slots=True)
class BoundInputs:
    """Example inputs under the names of forward's parameters.

    Attributes:
        tensors: by input name, in the order of forward's parameters.
        positional: how many of them are passed by position; the others are keywords.
    """

    tensors: dict[str, torch.Tensor]
    positional: int

    @property
    def args(self) -> tuple[torch.Tensor, ...]:
        """The inputs passed by position."""
        return tuple(self.tensors.values())[: self.positional]

    @property
    def kwargs(self) -> dict[str, torch.Tensor]:
        """The inputs passed by keyword."""
        return dict(list(self.tensors.items())[self.positional :])

    def resized(self, axes: Mapping[str, int], size: int) -> BoundInputs:
        """The same rows, repeated in order or cut until axis axes[name] of each is `size` long."""
        tensors = {
            name: x.index_select(
                axes[name], torch.arange(size, device=x.device) % x.shape[axes[name]]
            )
            if name in axes
            else x
            for name, x in self.tensors.items()
        }
        return BoundInputs(tensors, self.positional)


def bind(module: nn.Module, inputs: Inputs) -> BoundInputs:
    """The inputs under the names of module.forward's parameters.

    Raises:
        QConfigError: forward does not take these inputs.
        UnsupportedError: an input that is no tensor, or a forward with *args or **kwargs.
    """
    owner = f"{type(module).__name__}.forward"
    signature = inspect.signature(module.forward)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UnsupportedError(
                f"{owner} takes '{str(parameter).split(':')[0]}': its inputs have no fixed names. "
                "Wrap the module in one whose forward names each tensor."
            )
    try:
        if isinstance(inputs, Mapping):
            bound = signature.bind(**inputs)
        else:
            bound = signature.bind(*([inputs] if isinstance(inputs, torch.Tensor) else inputs))
    except TypeError as error:
        known = list(signature.parameters)
        given = list(inputs) if isinstance(inputs, Mapping) else []
        unknown = [name for name in given if name not in known]
        hint = nearest(unknown[0], known) if unknown else ""
        raise QConfigError(
            f"{owner}({', '.join(known)}) does not take the example inputs: {error}.{hint}"
        ) from error
    for name, value in bound.arguments.items():
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(
                f"{owner}: example input '{name}' is a {type(value).__name__}; wanted a tensor. "
                "Wrap the module in one whose forward takes tensors only and sets the rest itself."
            )
    return BoundInputs(dict(bound.arguments), len(bound.args))


def example_inputs(module: nn.Module) -> Inputs:
    """Inputs that the module or the file that defines it offers.

    Looked up in this order: `module.example_inputs`, `module.example_input_array` (Lightning's
    name), and `example_inputs` in the Python file that defines the module's class. Each may be a
    tensor, a sequence or a mapping of tensors, or a function without arguments that returns one.

    Raises:
        QConfigError: none of these exists.
    """
    file = sys.modules[type(module).__module__]
    for owner, name in (
        (module, "example_inputs"),
        (module, "example_input_array"),
        (file, "example_inputs"),
    ):
        found: Inputs | Callable[[], Inputs] | None = getattr(owner, name, None)
        if found is None:
            continue
        return found() if callable(found) else found
    parameters = list(inspect.signature(module.forward).parameters)
    raise QConfigError(
        f"{type(module).__name__}: no example inputs to trace it with. In Python, pass "
        "inputs=tensors. On the command line name them, as in "
        f"--input '{parameters[0] if parameters else 'x'}=float32[4,3,224,224]', or give real ones "
        f"with --samples FILE.npz. Or define example_inputs() in {type(module).__module__}."
    )


def parse_input(text: str) -> tuple[str, torch.Tensor]:
    """Name and random tensor of "name=dtype[d0,d1,...]": normal floats, integers 0 and 1; seeded.

    Raises:
        QConfigError: text of another form, or an unknown dtype.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise QConfigError(
            f"input '{text}': wanted NAME=DTYPE[SHAPE], as in 'image=float32[4,3,32,32]'."
        )
    name, dtype = match["name"], match["dtype"]
    shape = [int(d) for d in match["shape"].split(",") if d.strip()]
    generator = torch.Generator().manual_seed(_SEED)
    if dtype in _FLOATS:
        return name, torch.randn(shape, generator=generator).to(_FLOATS[dtype])
    if dtype in _INTEGERS:  # 0 and 1 are valid wherever integers index something
        return name, torch.randint(0, 2, shape, generator=generator).to(_INTEGERS[dtype])
    known = [*_FLOATS, *_INTEGERS]
    raise QConfigError(
        f"input '{text}': dtype '{dtype}' is not known; known: {', '.join(known)}."
        f"{nearest(dtype, known)}"
    )


def read_inputs(path: str | Path, samples: int = 4) -> dict[str, torch.Tensor]:
    """The first `samples` rows of each array of an npz file, by name.

    Raises:
        CalibrationError: not a readable npz file.
    """
    try:
        with np.load(path) as arrays:
            return {name: torch.from_numpy(arrays[name][:samples].copy()) for name in arrays.files}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CalibrationError(
            f"samples '{path}': cannot be read as npz ({why_unreadable(error)}). "
            "Save plain arrays with numpy.savez(path, name=array)."
        ) from error

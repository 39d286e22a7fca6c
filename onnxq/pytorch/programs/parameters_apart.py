"""Parameters of other values while a program's ONNX form is made, so that none is like another.

    bias = 0, 0, ...;  gamma = 1, 1, ...    drawn from [0.5, 1.5)
    two parameters of equal values          the second drawn

torch's exporter merges constants that are equal, and leaves out a sum with 0 and a product with 1.
Where quantizers sit would then depend on how far a model is trained.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.export import ExportedProgram

_SEED = 0


@contextlib.contextmanager
def parameters_apart(program: ExportedProgram) -> Iterator[None]:
    """A context in which parameters that are constant, or equal to others, have other values.

    Args:
        program: has its own values again outside.
    """
    state = program.state_dict
    held = dict(state)
    parameters = {name: state[name] for name in program.graph_signature.parameters}
    state.update(_apart(parameters))
    try:
        yield
    finally:
        state.update(held)


def _apart(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Other values for those that need them; tied parameters stay tied."""
    generator = torch.Generator().manual_seed(_SEED)
    drawn: dict[int, torch.Tensor] = {}
    first: dict[tuple[object, ...], torch.Tensor] = {}
    for x in parameters.values():
        if id(x) in drawn or not x.is_floating_point() or not x.numel():
            continue
        is_first = first.setdefault(_key(x), x) is x
        if not is_first or bool((x == x.flatten()[0]).all()):
            values = torch.rand(x.shape, generator=generator) + 0.5
            drawn[id(x)] = torch.nn.Parameter(values.to(x), requires_grad=x.requires_grad)
    return {name: drawn[id(x)] for name, x in parameters.items() if id(x) in drawn}


def _key(x: torch.Tensor) -> tuple[object, ...]:
    """Equal for equal values."""
    values = x.detach().cpu().flatten().view(torch.uint8).numpy()
    return (x.dtype, tuple(x.shape), hashlib.sha256(values.tobytes()).digest())

"""Leads tensors of an exported model back to the torch.fx nodes that compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxq.graph.expose import expose
from onnxq.ort import runtime
from onnxq.pytorch.placing.recorded import Recorded, record
from onnxq.pytorch.placing.tracing import SCOPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir
    from torch import fx

    from onnxq.core.arrays import Array
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs


_SCOPES = "pkg.torch.onnx.name_scopes"
_TOLERANCE = 1e-4  # of the largest value: float sums in another order; other nodes differ by more
_SEED = 0
_STRETCH = 3.0  # of perturbed inputs: values beyond the bounds of a ReLU6 that the examples keep


class Matcher:
    """Which nodes compute a tensor of the exported model.

    Args:
        traced: the module.
        inputs: example inputs.
        model: the exported model, canonical.
        tensors: names of the tensors that may be asked for; initializers need not be named.
    """

    def __init__(
        self,
        traced: fx.GraphModule,
        inputs: BoundInputs,
        model: ir.Model,
        tensors: Iterable[str],
    ) -> None:
        self._initializers = model.graph.initializers
        trials = [inputs, _perturbed(inputs)]
        self.recorded: list[Recorded] = [record(traced, trial) for trial in trials]
        self._arrays = _run(model, [*dict.fromkeys(tensors)], trials)
        self._by_shape: dict[tuple[int, ...], list[fx.Node]] = {}
        for node, value in self.recorded[0].items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self._by_shape.setdefault(_squeezed(value.shape), []).append(node)

    def nodes(self, value: ir.Value) -> list[fx.Node]:
        """The nodes with the tensor's values, in order: of its module where there are such ones.

        Nodes whose shape differs by axes of length 1 come last.
        """
        arrays = self._of(value)
        shape = arrays[0].shape
        found = [n for n in self._by_shape.get(_squeezed(shape), []) if self._agrees(n, arrays)]
        scope = scope_of(value)
        inside = [node for node in found if scope is not None and node.meta[SCOPE] == scope]
        return sorted(inside or found, key=lambda n: tuple(self._tensor(n).shape) != shape)

    def is_copy(self, node: fx.Node) -> bool:
        """Whether a node gives its first argument as it is (dropout in eval mode, identity)."""
        if not node.all_input_nodes:
            return False
        source = node.all_input_nodes[0]
        pairs = [(values[node], values[source]) for values in self.recorded]
        return all(
            isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
            for a, b in pairs
        )

    def is_tensor(self, node: fx.Node) -> bool:
        """Whether a node gives one tensor of floats."""
        value = self.recorded[0][node]
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    def constant(self, value: ir.Value) -> Array:
        """The values of an initializer."""
        return self._of(value)[0]

    def _tensor(self, node: fx.Node) -> torch.Tensor:
        value: torch.Tensor = self.recorded[0][node]
        return value

    def _of(self, value: ir.Value) -> list[Array]:
        name = value.name or ""
        if name in self._initializers:
            tensor = self._initializers[name].const_value
            assert tensor is not None
            return [tensor.numpy()] * len(self.recorded)
        return [arrays[name] for arrays in self._arrays]

    def _agrees(self, node: fx.Node, arrays: list[Array]) -> bool:
        return all(
            _close(values[node].numpy(), array)
            for values, array in zip(self.recorded, arrays, strict=True)
        )


def _run(model: ir.Model, tensors: list[str], trials: list[BoundInputs]) -> list[dict[str, Array]]:
    exposed = expose(model, tensors)
    wanted = [exposed.outputs[name] for name in tensors]
    with runtime.open_session(exposed.model) as session:
        return [
            dict(zip(tensors, session.run(trial.arrays, wanted), strict=True)) for trial in trials
        ]


def _perturbed(inputs: BoundInputs) -> BoundInputs:
    """Other values of the same shapes, without the accidents of the examples."""
    generator = torch.Generator().manual_seed(_SEED)
    tensors = {}
    for name, x in inputs.tensors.items():
        flipped = x.flip(0) if x.ndim else x
        # a mask of -inf is flipped alone: its deviation is no number
        if x.is_floating_point() and bool(torch.isfinite(x).all()):
            noise = torch.randn(x.shape, generator=generator).to(x.dtype)
            flipped = _STRETCH * (flipped + noise * x.detach().std(correction=0))
        tensors[name] = flipped
    return inputs.holding(tensors)


def _close(got: Array, wanted: Array) -> bool:
    got = got.reshape(wanted.shape)
    finite = np.abs(wanted[np.isfinite(wanted)])
    bound = _TOLERANCE * float(finite.max(initial=0.0))
    return bool(np.allclose(got, wanted, rtol=0.0, atol=bound, equal_nan=True))


def _squeezed(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape if size != 1)


def scope_of(value: ir.Value) -> str | None:
    """Path of the module in whose forward the exporter met the value; None where it is not said."""
    producer = value.producer()
    text = None if producer is None else producer.metadata_props.get(_SCOPES)
    if text is None:
        return None
    names = [part.strip().strip("'\"") for part in text.strip("[]").split(",")]
    return names[-2] if len(names) > 1 else None

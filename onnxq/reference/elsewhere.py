"""Float nodes that the caller runs: on ONNX Runtime itself, for whoever tests integers alone.

reference.evaluator(model, float_nodes=opener)    # opener(node, opsets)(inputs) -> outputs
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference.op_run import OpRun

from onnxq.operator import Array
from onnxq.reference.ops import INTEGER_DTYPES, KernelOp, PlainOp

RunNode = Callable[[Sequence[Array | None]], Sequence[Array]]
"""inputs -> outputs of one node; those that have no name are left out."""
FloatNodes = Callable[[onnx.NodeProto, Mapping[str, int]], RunNode]
"""(node, {domain: opset}) -> what runs it. Nodes that hold graphs (If, Loop) are not among them."""
FLOATS = frozenset({"float16", "float32", "float64"})
QUANTIZED = INTEGER_DTYPES - {"int32"}
"""Dtypes of tensors that make a node one on integers; int32 is the type of indices too."""


class _Elsewhere(OpRun):
    """A node of a float operator; mixed with the class that runs it on integers."""

    float_nodes: ClassVar[FloatNodes]

    def __init__(
        self, onnx_node: onnx.NodeProto, run_params: dict[str, Any], schema: Any = None
    ) -> None:
        super().__init__(onnx_node, run_params, schema)
        self._elsewhere = type(self).float_nodes(onnx_node, run_params["opsets"])

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        if not self._is_float(inputs):
            # onnx's base has no types, and calls itself abstract
            outputs: tuple[Any, ...] = super()._run(*inputs, **attributes)  # type: ignore[no-untyped-call,safe-super]  # above
            return outputs
        named = iter(self._elsewhere(inputs))
        return tuple(next(named) if name else np.empty(0) for name in self.onnx_node.output)

    def _is_float(self, inputs: Sequence[Any]) -> bool:
        """Whether floats go in, no integers, tensors only, and no exact kernel serves them."""
        given = [x for x in inputs if x is not None]
        if not all(isinstance(x, np.ndarray) for x in given):
            return False
        if isinstance(self, KernelOp) and self.uses_kernel(inputs) and not self.adds_floats(inputs):
            return False
        names = {x.dtype.name for x in given}
        return bool(names & FLOATS) and not names & QUANTIZED


def float_classes(
    model: ir.Model, float_nodes: FloatNodes, classes: Mapping[tuple[str, str], type[OpRun]]
) -> tuple[type[OpRun], ...]:
    """A class for each operator of the model that may compute in float."""
    keys = {
        (node.domain, node.op_type): None
        for node in model.graph.all_nodes()
        if not node.domain.startswith("ai.onnx")
        and not any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values())
    }
    return tuple(_float_class(*key, float_nodes, classes.get(key, PlainOp)) for key in keys)


def _float_class(
    domain: str, op_type: str, float_nodes: FloatNodes, otherwise: type[OpRun]
) -> type[OpRun]:
    bases = (_Elsewhere, otherwise)
    members = {"op_domain": domain, "float_nodes": staticmethod(float_nodes)}
    return type(op_type, bases, members | {"__module__": __name__})

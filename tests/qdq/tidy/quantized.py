"""Small models with integers, and what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import helper

from onnxq.graph.edit import FreeNames
from onnxq.graph.passes.unused import RemoveUnused
from onnxq.ort import runtime
from tests import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx

Array = npt.NDArray[Any]
STEP = np.float32(0.02)
node = helper.make_node


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    x: Sequence[int | str] = ("N", 3, 6, 6),
    outputs: Mapping[str, int] | None = None,
) -> ir.Model:
    return ir.from_proto(examples.model(nodes, constants, {"x": x}, outputs, opset=21))


def x_integers() -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """x -> Q -> DQ -> xd."""
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "q"),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "dq"),
    ]
    return nodes, {"xs": np.array(STEP), "xz": np.array(128, np.uint8)}


def weight(
    integers: Array, scale: Array, axis: int = 0
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """w_quantized -> DQ -> wd."""
    parts = {"w_quantized": integers, "ws": scale, "wz": np.zeros(scale.shape, np.int8)}
    attributes: dict[str, Any] = {"axis": axis} if scale.ndim else {}
    return [node("DequantizeLinear", list(parts), ["wd"], "wdq", **attributes)], parts


def each(made: ir.Model, step: Callable[[ir.Node, FreeNames], None]) -> None:
    names = FreeNames(made)
    for part in list(made.graph):
        step(part, names)
    RemoveUnused()(made)


def constants_of(made: ir.Model, op: str, slot: int) -> list[Array]:
    """[integers, scale] behind the DQ in that slot of the first node of that kind."""
    found = next(part for part in made.graph if part.op_type == op)
    value = found.inputs[slot]
    source = None if value is None else value.producer()
    assert source is not None
    arrays = [v.const_value for v in source.inputs if v is not None]
    return [a.numpy() for a in arrays if a is not None][:2]


def computed(made: ir.Model, x: Array) -> Array:
    with runtime.open_session(made, optimization=runtime.Optimization.NONE) as session:
        return np.asarray(session.run({"x": x})[0])


def images(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)

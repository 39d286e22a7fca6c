from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.checking.cross_check import cross_check
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.qconfig import Choice, QConfig, QConfigMapping
from onnxq.qdq.signed_integers import keep_loadable
from tests.examples import ALL_INTEGERS, as_ir, model, weights

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx
    import onnx_ir as ir

make = helper.make_node
INT8 = (
    QConfigMapping(
        QConfig(MinMaxObserver.with_args(dtype="qint8"), NarrowRangeObserver.with_args())
    )
    .set_op_type("Add", None)
    .set_choice(Choice.ALL_INTEGERS)
)
X: npt.NDArray[np.float32] = weights(3, 2, 5, 8)


def biased(opset: int = 21, batch: int | str = 2, bias: tuple[int, ...] = (6,)) -> ir.Model:
    """Y = Relu(X W + B), read by a MatMul of its own bias, which is the product of two others."""
    nodes = [
        make("MatMul", ["x", "w"], ["a"], "first"),
        make("Add", ["b", "a"], ["c"], "add"),
        make("Relu", ["c"], ["r"], "relu"),
        make("MatMul", ["r", "v"], ["d"], "second"),
        make("ReduceSum", ["x", "all"], ["s"], "sum", keepdims=0),
        make("Relu", ["s"], ["run_time_bias"], "relu2"),
        make("Add", ["d", "run_time_bias"], ["y"], "add2"),
    ]
    constants = {
        "w": weights(0, 8, 6),
        "b": weights(1, *bias),
        "v": weights(2, 6, 8),
        "all": np.array([0, 1]),
    }
    return as_ir(model(nodes, constants, {"x": [batch, 5, 8]}, opset=opset))


def ranks(quantized: ir.Model) -> dict[str, list[int]]:
    """Ranks of what each Add adds."""
    adds = [node for node in quantized.graph if node.op_type == "Add"]
    shapes = {str(n.name): [v.shape for v in n.inputs if v is not None] for n in adds}
    return {name: sorted(len(s) for s in found if s is not None) for name, found in shapes.items()}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize("batch", [2, "N"])
def test_a_bias_behind_int8_integers_loads_and_gives_the_same_integers(
    form: str, opset: int, batch: int | str
) -> None:
    source = biased(opset, batch)
    quantized = onnxq.quantize(source, [{"x": X}], qconfig=INT8, target="arm64", format=form)
    cross_check(quantized, [{"x": X}]).check(max_output_lsb=1)


def test_a_bias_inside_of_a_float_result_needs_no_axis_in_front() -> None:
    for mapping in (INT8, ALL_INTEGERS.set_op_type("Add", None)):
        made = onnxq.quantize(biased(21), [{"x": X}], qconfig=mapping, target="arm64")
        assert ranks(made) == {"add2": [1, 3]}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize(
    "movement",
    [
        make("Transpose", ["r"], ["m"], "move", perm=[0, 2, 3, 1]),
        make("MaxPool", ["r"], ["m"], "move", kernel_shape=[2, 2]),
        make("Unsqueeze", ["r", "axis"], ["m"], "move"),
    ],
)
@pytest.mark.parametrize("output", ["m", "y"])
def test_integers_that_are_moved_in_float_load_and_stay_the_same(
    form: str, opset: int, movement: onnx.NodeProto, output: str
) -> None:
    nodes = [
        make("Conv", ["x", "w"], ["c"], "conv"),
        make("Relu", ["c"], ["r"], "relu"),
        movement,
        make("Exp", ["m"], ["y"], "exp"),
    ]
    constants = {"w": weights(0, 4, 3, 1, 1), "axis": np.array([1])}
    proto = model(nodes, constants, {"x": ["N", 3, 5, 4]}, {output: 1, "r": 1}, opset=opset)
    x = [{"x": weights(1, 2, 3, 5, 4)}]
    quantized = onnxq.quantize(as_ir(proto), x, qconfig=INT8, target="arm64", format=form)
    cross_check(quantized, x).check(max_output_lsb=4)
    copies = [n for n in quantized.graph if n.op_type == "Max"]
    assert len(copies) == (opset == 21)


def test_the_second_time_changes_nothing() -> None:
    quantized = onnxq.quantize(biased(), [{"x": X}], qconfig=INT8, target="arm64")
    before = [v.name for n in quantized.graph for v in n.inputs if v is not None]
    keep_loadable(quantized)
    assert [v.name for n in quantized.graph for v in n.inputs if v is not None] == before

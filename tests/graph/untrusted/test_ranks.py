"""Every operator, with constants and inputs of every rank and of other sizes, by every entry.

(Some 30 CPU seconds in all: a call costs a few milliseconds, and there are 6,000.)
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq import catalog
from onnxq.errors import ModelError, OnnxqError
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.graph.untrusted.ranks import check_ranks
from tests.examples import model, weights
from tests.operators.builder import float_model, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.core.arrays import Array
    from onnxq.operator.contract import Operator

Feeds = dict[str, "Array"]
ENTRIES: dict[str, Callable[[onnx.ModelProto, Feeds], object]] = {
    "inspect": lambda proto, _: onnxq.inspect(proto),
    "quantize": lambda proto, feeds: onnxq.quantize(proto, [feeds]),
    "dynamic": lambda proto, _: onnxq.quantize_dynamic(proto, objective="size"),
    "weights": lambda proto, _: onnxq.quantize_weights(proto),
}
OPERATORS = {f"{op.domain}.{op.op_type}": op for op in catalog.all_operators()}


def shapes(array: Array) -> Iterator[tuple[int, ...]]:
    """Ranks 0 to 5, and each size of the array by 0, 1 and one more."""
    yield from ((2,) * rank for rank in range(6))
    for axis, size in enumerate(array.shape):
        for other in {0, 1, size + 1} - {size}:
            yield (*array.shape[:axis], other, *array.shape[axis + 1 :])


def filled(array: Array, shape: tuple[int, ...]) -> Array:
    return np.resize(array if array.size else np.ones(1, array.dtype), shape).astype(array.dtype)


def hurt(operator: Operator) -> Iterator[tuple[onnx.ModelProto, Feeds]]:
    """The operator's case with most constants, one array of it in another shape at a time."""
    cases = list(operator.cases())
    case = max(
        cases, key=lambda c: (len(c.constants), -sum(0 if x is None else x.size for x in c.inputs))
    )
    whole = float_model(operator, case)
    del whole.graph.value_info[:]
    for output in whole.graph.output:
        output.type.tensor_type.ClearField("shape")
    arrays = {name: x for name, x in zip(names(case), case.inputs, strict=True) if x is not None}
    constants = {tensor.name for tensor in whole.graph.initializer}
    feeds = {name: x for name, x in arrays.items() if name not in constants}
    for tensor in whole.graph.initializer:
        for shape in shapes(arrays[tensor.name]):
            kept = tensor.SerializeToString()
            tensor.CopyFrom(
                numpy_helper.from_array(filled(arrays[tensor.name], shape), tensor.name)
            )
            yield whole, feeds
            tensor.ParseFromString(kept)
    for given in whole.graph.input:
        kind, kept = given.type.tensor_type.elem_type, given.SerializeToString()
        for rank in range(6):
            array = filled(feeds[given.name], (2,) * rank)
            given.CopyFrom(helper.make_tensor_value_info(given.name, kind, array.shape))
            yield whole, {**feeds, given.name: array}
        given.ParseFromString(kept)


def runs(proto: onnx.ModelProto, feeds: Feeds) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        data = proto.SerializeToString()
        onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feeds)
    except Exception:
        return False
    return True


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a verdict; of NumPy, each is an error
@pytest.mark.parametrize("name", OPERATORS)
def test_no_shape_ends_in_a_traceback(name: str) -> None:
    for proto, feeds in hurt(OPERATORS[name]):
        for entry in ENTRIES.values():
            with contextlib.suppress(OnnxqError):
                entry(proto, feeds)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_the_door_refuses_onnx_runtime_does_not_run(name: str) -> None:
    for proto, feeds in hurt(OPERATORS[name]):
        refused = False
        try:
            load(proto)
        except ModelError:
            refused = True
        assert not (refused and runs(proto, feeds))


def matmul(bias: int) -> onnx.ModelProto:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "fc")
    constants = {"w": weights(0, 4, 3), "b": weights(1, *(1,) * bias)}
    return model([node], constants, {"x": ["N", 4]})


def test_the_node_and_the_rank_are_named() -> None:
    load(matmul(2))
    with pytest.raises(ModelError, match=r"Gemm 'fc' reads 'b' of rank 3 as input 2; .* 0 to 2"):
        load(matmul(3))


def test_what_a_constant_node_gives_has_a_rank_too() -> None:
    value = numpy_helper.from_array(np.array(True))
    nodes = [helper.make_node("Constant", [], ["w"], value=value)]
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"], "fc"))
    with pytest.raises(ModelError, match="MatMul 'fc' reads 'w' of rank 0 as input 1"):
        load(model(nodes, {}, {"x": ["N", 4]}))


def test_a_constant_without_a_value_ends_in_words() -> None:
    nodes = [helper.make_node("Constant", [], ["w"], "constant")]
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"], "fc"))
    made = model(nodes, {}, {"x": ["N", 4]})
    assert not list(check_ranks(ir.from_proto(made)))
    with pytest.raises(OnnxqError):
        onnxq.quantize_dynamic(made)


def test_what_is_computed_of_constants_has_a_rank_too() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["w"], "gather"),
        helper.make_node("MatMul", ["x", "w"], ["y"], "fc"),
    ]
    constants = {"table": weights(0, 4), "i": np.array(1)}
    with pytest.raises(ModelError, match="MatMul 'fc' reads 'w' of rank 0 as input 1"):
        canonicalize(load(model(nodes, constants, {"x": ["N", 4]})))


def branches(body: onnx.GraphProto) -> onnx.ModelProto:
    node = helper.make_node("If", ["c"], ["y"], "if", then_branch=body, else_branch=body)
    return model([node], {"c": np.array(True)}, {"x": ["N", 3]})


def constant_body() -> onnx.GraphProto:
    value = numpy_helper.from_array(np.ones(3, np.float32))
    nodes = [helper.make_node("Constant", [], ["k"], value=value)]
    nodes.append(helper.make_node("Add", ["x", "k"], ["z"]))
    end = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    return helper.make_graph(nodes, "body", [], [end])


@pytest.mark.parametrize("entry", ENTRIES)
def test_bodies_are_checked_as_the_graph_is(entry: str) -> None:
    feeds: Feeds = {"x": np.ones((2, 3), np.float32)}
    with pytest.raises(ModelError, match="gives 0"):
        ENTRIES[entry](branches(onnx.GraphProto()), feeds)
    broken = branches(constant_body())
    for attribute in broken.graph.node[0].attribute:
        attribute.g.node[0].attribute[0].t.data_type = -9
    with pytest.raises(ModelError, match="tensor 'k' is of type -9, which ONNX has not"):
        ENTRIES[entry](broken, feeds)

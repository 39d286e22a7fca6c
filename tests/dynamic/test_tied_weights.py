from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.dynamic.tied_weights import find_tied, is_transpose_of
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import (
    QConfigDynamic,
    QConfigMapping,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
)
from tests.dynamic_models import normal, planned, quantized
from tests.examples import model as example

ROWS, SIZE = 40, 32
TABLE = normal(ROWS, SIZE)
IDS = np.arange(12).reshape(3, 4)


def value(name: str, array: npt.NDArray[np.float32]) -> ir.Value:
    return ir.Value(name=name, const_value=ir.tensor(array))


def tied(head: npt.NDArray[np.float32]) -> onnx.ModelProto:
    """y = table[ids] head, as the exporter writes tied ones: the head is a constant of its own."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["x"], "embedding"),
            helper.make_node("MatMul", ["x", "head"], ["y"], "output"),
        ],
        "tied",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["N", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(TABLE, "table"),
            onnx.numpy_helper.from_array(np.ascontiguousarray(head), "head"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(model: ir.Model) -> npt.NDArray[np.float32]:
    with runtime.open_session(model, threads=1) as session:
        return np.asarray(session.run({"ids": IDS})[0], np.float32)


def sizes(model: ir.Model) -> int:
    """Bytes of the constants."""
    values = model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def test_a_twin_is_a_transpose_and_nothing_like_it() -> None:
    other = TABLE.copy()
    other[-1, -1] += 1
    table = value("table", TABLE)
    assert is_transpose_of(value("t", TABLE.T.copy()), table)
    assert not is_transpose_of(value("t", other.T.copy()), table)
    assert not is_transpose_of(value("t", TABLE), table)
    assert not is_transpose_of(value("t", TABLE[:, 0]), table)
    twin = value("t", TABLE.T.copy())
    assert find_tied([table, twin, table]) == {twin: table}


@pytest.mark.parametrize("target", ["portable", "x86-vnni"])
def test_integers_of_a_tied_embedding_are_stored_once(target: str) -> None:
    model = quantized(tied(TABLE.T), objective="size", target=target)
    names = [name for name in model.graph.initializers if name.endswith("_quantized")]
    assert names == ["table_quantized"]
    assert (
        sizes(model) <= 0.4 * TABLE.nbytes
    )  # rows of 32: scales, one set per reader, weigh 2 in 10
    wanted = TABLE[IDS] @ TABLE.T
    # both factors within one LSB of 64 (portable) or 127 integers a side, activations of 255
    assert np.abs(run(model) - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_matrix_that_only_looks_alike_is_its_own() -> None:
    head = TABLE.T.copy()
    head[-1, -1] += 1
    model = quantized(tied(head), objective="size")
    wanted = TABLE[IDS] @ head
    assert len([n for n in model.graph.initializers if n.endswith("_quantized")]) == 2
    assert np.abs(run(model) - wanted).max() < 0.05 * np.abs(wanted).max()


def test_float16_of_a_tied_embedding_is_stored_once() -> None:
    model = quantized(tied(TABLE.T), dtype="float16")
    assert list(model.graph.initializers) == ["table_half"]
    wanted = TABLE[IDS] @ TABLE.T
    error = 2.0**-11 * (2 * np.abs(TABLE[IDS]) @ np.abs(TABLE.T))
    assert (np.abs(run(model) - wanted) <= error * 1.01).all()


@pytest.mark.parametrize(
    "head",
    [None, QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision.WEIGHT_ONLY_GROUPWISE)],
)
def test_a_tie_that_breaks_is_noted(head: QConfigDynamic | None) -> None:
    spec = QConfigMapping(onnxq_default_dynamic_qconfig).set_node("output", head)
    _, plan = planned(tied(TABLE.T), spec, objective="size")
    assert any("'head' is 'table' transposed; both are stored" in note for note in plan.notes)
    _, plan = planned(tied(TABLE.T), onnxq_default_dynamic_qconfig)
    assert not plan.notes


@pytest.mark.parametrize(("dtype", "quant_max", "count"), [("int4", 7, 1), ("int8", 127, 2)])
def test_a_tie_in_blocks_is_noted_where_it_breaks(dtype: str, quant_max: int, count: int) -> None:
    observer = NarrowRangeObserver.with_args(dtype=dtype, quant_max=quant_max)
    entry = QConfigDynamic(observer, Precision.WEIGHT_ONLY_GROUPWISE, block_size=16)
    model, plan = quantized(tied(TABLE.T), entry), planned(tied(TABLE.T), entry)[1]
    integers = {v.name for v in model.graph.initializers.values() if v.const_value is not None}
    assert len([n for n in integers if str(n).endswith(("_quantized", "_unsigned"))]) == count
    assert len(plan.notes) == count - 1


def test_two_bits_in_blocks_quantize_the_matmul_and_leave_the_embedding_in_float() -> None:
    spec = NarrowRangeObserver.with_args(dtype="int2", quant_max=1)
    entry = QConfigDynamic(spec, Precision.WEIGHT_ONLY_GROUPWISE)
    _, plan = planned(tied(TABLE.T), entry)
    assert "takes integers of 4 bits or more" in str(plan.decisions["embedding"])
    assert list(plan.quantized) == ["output"]
    assert "head_quantized" in quantized(tied(TABLE.T), entry).graph.initializers


def test_a_matrix_is_read_once_and_only_where_another_could_be_its_twin() -> None:
    reads: list[str] = []

    def lazy(name: str, *shape: int) -> ir.Value:
        def make() -> ir.TensorProtocol:
            reads.append(name)
            return ir.tensor(normal(*shape, seed=len(reads)))

        tensor = ir.LazyTensor(make, ir.DataType.FLOAT, ir.Shape(shape), name=name)
        return ir.Value(name=name, const_value=tensor)

    assert not find_tied([lazy("alone", 3, 4), lazy("square", 5, 5)])
    assert reads == []
    assert not find_tied([lazy(name, 5, 5) for name in "abcd"])
    assert reads == list("abcd")


# --- one weight, several readers


def shared(second: str = "Gemm", **attributes: Any) -> onnx.ModelProto:
    """y = op(x w, w), both MatMuls of one square matrix."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
        helper.make_node(second, ["p", "w"], ["y"], "second", **attributes),
    ]
    return example(nodes, {"w": normal(SIZE, SIZE)}, {"x": ["N", SIZE]})


def integers_in(model: ir.Model) -> int:
    """How often w stands in the file."""
    return len([n for n in model.graph.initializers if "scale" not in n and "zero" not in n])


def test_a_weight_with_channels_on_two_axes_is_noted() -> None:
    source = shared(transB=1)
    _, plan = planned(source)
    assert plan.notes == (
        "weight 'w' is in the file 2 times: int8 within +-64 with a scale per index of axis 1 for "
        "'first'; int8 within +-64 with a scale per index of axis 0 for 'second'",
    )
    assert integers_in(quantized(source)) == 2


def test_a_weight_that_all_readers_share_needs_no_note() -> None:
    source = shared("MatMul")
    assert planned(source)[1].notes == ()
    assert integers_in(quantized(source)) == 1
    entry = QConfigDynamic(NarrowRangeObserver.with_args(ch_axis=None))
    assert planned(shared(transB=1), entry)[1].notes == ()
    assert integers_in(quantized(shared(transB=1), entry)) == 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, "float32 for 'second'"),
        (float16_dynamic_qconfig, "float16 for 'second'"),
        (
            QConfigDynamic(onnxq_default_dynamic_qconfig.weight, block_size=16),
            "int8 within +-127 in groups of 16 along axis 0 for 'second'",
        ),
        (
            QConfigDynamic(NarrowRangeObserver.with_args(ch_axis=None), Precision.WEIGHT_ONLY),
            "int8 within +-127 with one scale for 'second'",
        ),
    ],
    ids=["float", "half", "blocks", "one scale"],
)
def test_a_weight_of_two_forms_is_noted(entry: QConfigDynamic | None, words: str) -> None:
    spec = QConfigMapping(onnxq_default_dynamic_qconfig).set_node("second", entry)
    (note,) = planned(shared("MatMul"), spec)[1].notes
    first = "int8 within +-64 with a scale per index of axis 1 for 'first'"
    assert note == f"weight 'w' is in the file 2 times: {first}; {words}"
    assert integers_in(quantized(shared("MatMul"), spec)) == 2

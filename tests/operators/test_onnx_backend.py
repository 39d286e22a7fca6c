"""The ONNX project's own node tests, as its wheel brings them, run on the kernels.

Every test that holds a node of INTEGER, and every test whose data are integers and that holds a
node of MOVEMENT. Models of several nodes (expanded functions) run node by node: these nodes on the
kernels, the others on onnx's reference implementation. Results must equal ONNX Runtime's to the
bit, and the expected ones unless the test is listed here. Nothing is left out but what SKIPPED has.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from onnxq import catalog
from onnxq.operator import IntegerCall
from onnxq.operators._plain_on_integers import PlainOnIntegers
from tests.operators import builder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.core.arrays import Array
    from onnxq.operator import IntegerOperator


INTEGER = {
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
    "MatMulInteger", "ConvInteger",
}  # fmt: skip

MOVEMENT = {
    # pooling
    "MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "MaxUnpool",
    # copies, in another order or shape, of all elements or some
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split",
    "Slice", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Compress",
    "Tile", "Expand", "Pad", "CenterCropPad", "DepthToSpace", "SpaceToDepth", "Resize", "Upsample",
    "ReverseSequence", "Trilu", "Unique",
    # selection by value
    "Where", "Clip", "Relu", "Max", "Min", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK",
}  # fmt: skip

DIFFERS: dict[str, str] = {}
"""Test -> what ONNX Runtime computes instead of the expected result. (None does in onnx 1.23.)"""

NO_RUNTIME = {
    "test_convinteger_with_padding": "ConvInteger with a zero point per output channel",
    "test_dequantizelinear_float4e2m1": "DequantizeLinear of float4e2m1",
    "test_quantizelinear_float4e2m1": "QuantizeLinear to float4e2m1",
    "test_max_int16": "Max of int16",
    "test_max_uint16": "Max of uint16",
    "test_min_int16": "Min of int16",
    "test_min_uint16": "Min of uint16",
    "test_top_k_uint64": "TopK of uint64",
}
"""Test -> what ONNX Runtime 1.31 lacks; the kernel gives the expected result all the same."""

NO_KERNEL = {
    "Trilu": "ONNX Runtime has it for float, double, bool, int32 and int64, not on integers",
    "Unique": "the shape of its result depends on the data, so that nothing behind it has a plan",
}
"""Operator of MOVEMENT -> why there is no kernel on integers."""

SKIPPED = {
    "test_range_int32_type_negative_delta_expanded": "its Relu works on float: no node on integers",
    "test_unique_length_1": "Unique",
    **dict.fromkeys(
        (
            "test_tril", "test_tril_neg", "test_tril_one_row_neg", "test_tril_out_neg",
            "test_tril_out_pos", "test_tril_pos", "test_tril_square", "test_tril_square_neg",
            "test_tril_zero", "test_triu", "test_triu_neg", "test_triu_one_row",
            "test_triu_out_neg_out", "test_triu_out_pos", "test_triu_pos", "test_triu_square",
            "test_triu_square_neg", "test_triu_zero",
        ),
        "Trilu",
    ),
}  # fmt: skip
"""Test -> operator of NO_KERNEL, or why none of its nodes is this file's matter."""

REFUSALS = (ort_state.NotImplemented, ort_state.InvalidGraph, ort_state.Fail)

NEWEST_OPSET = 26  # that ONNX Runtime 1.31 takes; 28 adds types to QuantizeLinear, no more


NAMES = (Path(__file__).parent / "onnx_backend_tests.txt").read_text("utf-8").split()
"""Tests that this file is about. Those that onnx has are loaded by who runs them: it takes long."""
RUN = [name for name in NAMES if name not in SKIPPED]


@dataclass(frozen=True)
class Example:
    """One of ONNX's tests.

    Attributes:
        model: of one node, or of those that its function expands to.
        runs: pairs of inputs and expected outputs.
    """

    model: onnx.ModelProto
    runs: Sequence[tuple[list[Array], list[Array]]]


@functools.cache
def examples() -> Mapping[str, Example]:
    """Tests by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the suite computes its own NaN and Inf on purpose
        tests = load_model_tests(kind="node")
    return {
        test.name: Example(test.model, [(arrays(x), arrays(y)) for x, y in test.data_sets or ()])
        for test in tests
        if test.model is not None and _is_selected(test.model)
    }


def _is_selected(model: onnx.ModelProto) -> bool:
    ops = {node.op_type for node in model.graph.node}
    if ops & INTEGER:
        return True
    kinds = [value.type.tensor_type.elem_type for value in model.graph.input]
    data = kinds[1:] if "Where" in ops and kinds[0] == onnx.TensorProto.BOOL else kinds
    if not (ops & MOVEMENT and data and data[0]):  # 0: a sequence or an optional, no tensor
        return False
    return is_integer(helper.tensor_dtype_to_np_dtype(data[0]))


def is_integer(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind in "iu" or "int" in dtype.name


def arrays(tensors: Sequence[Array | onnx.TensorProto]) -> list[Array]:
    """Inputs or outputs of a data set: arrays, numbers, and protobufs of types that NumPy lacks."""
    return [
        numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)
        for x in tensors
    ]


def kernel_of(node: onnx.NodeProto, inputs: Sequence[Array | None]) -> IntegerOperator | None:
    """The kernel that this file promises for a node; None: the node is not its matter."""
    moved = node.op_type in MOVEMENT and is_integer(_data(inputs).dtype)
    if not (node.op_type in INTEGER or moved):
        return None
    operator = catalog.find_integer(node.op_type, node.domain)
    assert operator is not None, f"{node.op_type} has no kernel, and is not in NO_KERNEL"
    return operator


def _data(inputs: Sequence[Array | None]) -> Array:
    return next(x for x in inputs if x is not None and x.dtype != np.bool_)


def run_on_kernels(model: onnx.ModelProto, inputs: Sequence[Array]) -> tuple[list[Array], int]:
    """Outputs of the model, and how many of its nodes ran on kernels."""
    values: dict[str, Array | None] = {"": None}
    values |= {v.name: x for v, x in zip(model.graph.input, inputs, strict=True)}
    values |= {v.name: numpy_helper.to_array(v) for v in model.graph.initializer}
    count = 0
    for node in model.graph.node:
        given = [values[name] for name in node.input]
        operator = kernel_of(node, given) if given else None
        if operator is None:
            results: Sequence[Array] = _run_alone(model, node, values)
        else:
            count += 1
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            results = operator.kernel(IntegerCall(operator.op_type, given, attributes=attributes))
        values |= dict(zip(node.output, results, strict=False))
    outputs = [values[v.name] for v in model.graph.output]
    return [y for y in outputs if y is not None], count


def _run_alone(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Array | None]
) -> list[Array]:
    bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    outer = {name for body in bodies for inner in body.node for name in inner.input}
    names = [*node.input, *(outer & values.keys() - set(node.input))]
    feeds = {name: values[name] for name in names if name}
    inputs = [onnx.ValueInfoProto(name=name) for name in feeds]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "alone", inputs, outputs)
    alone = helper.make_model(graph, opset_imports=model.opset_import)
    return [np.asarray(y) for y in ReferenceEvaluator(alone).run(None, feeds)]


def run_in_onnx_runtime(source: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of the model; types that NumPy lacks go in as initializers, come out as float32."""
    model = onnx.ModelProto()
    model.CopyFrom(source)
    model.ir_version = builder.IR_VERSION
    for opset in model.opset_import:
        opset.version = min(opset.version, NEWEST_OPSET)
    feeds = {}
    graph = model.graph
    for value, x in zip(list(graph.input), inputs, strict=True):
        if is_foreign(x):
            graph.initializer.append(numpy_helper.from_array(x, value.name))
            graph.input.remove(value)
        else:
            feeds[value.name] = x
    for value in graph.output:
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if kind.type.__module__ != "numpy":
            cast = helper.make_node("Cast", [value.name], [f"{value.name}_real"], to=builder.FLOAT)
            graph.node.append(cast)
            value.CopyFrom(onnx.ValueInfoProto(name=f"{value.name}_real"))
    return [np.asarray(y) for y in builder.session(model).run(None, feeds)]


def is_foreign(x: Array) -> bool:
    return x.dtype.type.__module__ != "numpy"


def equal(a: Array, b: Array) -> bool:
    """Same dtype, shape and numbers; NaN equals NaN."""
    if is_foreign(a) or is_foreign(b):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    same = a.dtype == b.dtype and a.shape == b.shape
    return same and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def all_equal(got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    return all(equal(a, b) for a, b in zip(got, wanted, strict=True))


@functools.cache
def results(name: str) -> tuple[list[list[Array]], int]:
    """Outputs per data set, and the least number of nodes on kernels."""
    example = examples()[name]
    runs = [run_on_kernels(example.model, inputs) for inputs, _ in example.runs]
    return [outputs for outputs, _ in runs], min(count for _, count in runs)


@pytest.mark.parametrize("name", RUN)
def test_kernels_give_what_onnx_runtime_gives(name: str) -> None:
    found, _ = results(name)
    example = examples()[name]
    for got, (inputs, _) in zip(found, example.runs, strict=True):
        if name in NO_RUNTIME:
            with pytest.raises(REFUSALS):
                run_in_onnx_runtime(example.model, inputs)
            continue
        assert all_equal(got, run_in_onnx_runtime(example.model, inputs))


@pytest.mark.parametrize("name", RUN)
def test_kernels_give_what_is_expected_unless_onnx_runtime_differs(name: str) -> None:
    found, _ = results(name)
    expected = [outputs for _, outputs in examples()[name].runs]
    same = all(all_equal(got, wanted) for got, wanted in zip(found, expected, strict=True))
    assert same == (name not in DIFFERS)


@pytest.mark.parametrize("name", RUN)
def test_each_test_reaches_a_kernel(name: str) -> None:
    _, count = results(name)
    assert count


def test_what_is_skipped_is_exactly_what_has_no_kernel() -> None:
    without = {
        name: node.op_type
        for name, example in examples().items()
        for node in example.model.graph.node
        if node.op_type in NO_KERNEL
    }
    others = {name for name in SKIPPED if name not in without}
    assert {name: op for name, op in SKIPPED.items() if name not in others} == without
    assert {name: results(name)[1] for name in others} == dict.fromkeys(others, 0)
    assert set(NO_KERNEL) == set(without.values())
    for op_type in NO_KERNEL:
        assert catalog.find_integer(op_type) is None, f"{op_type} has a kernel: run its tests"


def test_lists_have_no_stale_entries() -> None:
    assert set(DIFFERS) <= set(RUN)
    assert set(NO_RUNTIME) <= set(RUN)
    assert not set(DIFFERS) & set(NO_RUNTIME)


def test_the_suite_is_all_there() -> None:
    assert sorted(examples()) == NAMES
    ops = [node.op_type for one in examples().values() for node in one.model.graph.node]
    assert set(ops) >= INTEGER
    assert isinstance(catalog.find_integer("MaxPool"), PlainOnIntegers)
    assert len(RUN) >= 70

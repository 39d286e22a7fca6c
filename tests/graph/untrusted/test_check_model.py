"""One mutated model per rule of the door."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import ModelError
from onnxq.graph.io import load
from onnxq.graph.untrusted import CHECKS, check_model
from onnxq.graph.untrusted.check_model import (
    MAX_NODES,
    check_ends,
    check_functions,
    check_initializers_have_data,
    check_names_are_unique,
    check_opset,
    check_origins,
    check_tensors,
    check_texts,
)
from onnxq.graph.untrusted.external_data import check_external_data
from onnxq.graph.untrusted.order import MAX_DEPTH, check_depth, check_order
from onnxq.graph.untrusted.ranks import check_ranks
from onnxq.graph.untrusted.signatures import check_bodies, check_signatures, schema_of
from onnxq.reference.schema import signature_of
from tests.examples import network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.graph.untrusted import Problem

Check = Callable[[ir.Model], "Iterator[Problem]"]
Change = Callable[[onnx.ModelProto], object]

RESIZE = helper.make_node("Resize", ["x", "", "yes"], ["z"], mode=b"\xff")
AXIS = helper.make_attribute("axis", 1.0)
SCALAR = numpy_helper.from_array(np.array(1, np.float32), "w")
W = np.arange(16, dtype=np.float32).reshape(4, 4)


def proto(opset: int = 21) -> onnx.ModelProto:
    """y = Relu(MatMul(x, w)), and an If around a Neg."""
    branches = {
        f"{side}_branch": helper.make_graph(
            [helper.make_node("Neg", ["h"], [side], f"{side}_neg")],
            side,
            [],
            [helper.make_tensor_value_info(side, TensorProto.FLOAT, None)],
        )
        for side in ("then", "else")
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "matmul"),
        helper.make_node("If", ["yes"], ["c"], "choice", **branches),
        helper.make_node("Concat", ["c", "h"], ["y"], "join", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.array(True), "yes")],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def changed(change: Change) -> Callable[[], ir.Model]:
    def make() -> ir.Model:
        model = proto()
        change(model)
        return ir.from_proto(model)

    return make


def weight(**fields: Any) -> Callable[[], ir.Model]:
    """The model whose weight has these fields and no raw data."""

    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        raw = fields.get("raw_data", tensor.raw_data)
        if any(name.endswith("_data") for name in fields):
            tensor.ClearField("raw_data")
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(tensor, name)[:] = value
            else:
                setattr(tensor, name, value)
        assert raw is not None

    return changed(change)


def as_ir(change: Callable[[ir.Model], object]) -> Callable[[], ir.Model]:
    def make() -> ir.Model:
        model = ir.from_proto(proto())
        change(model)
        return model

    return make


def empty(model: ir.Model) -> None:
    del model.opset_imports[""]
    model.graph.remove(list(model.graph))


def nested(depth: int) -> ir.Model:
    """So many If in each other, made with onnx_ir: protobuf reads 32."""
    x = ir.val("x", ir.DataType.FLOAT, [2])
    yes = ir.val("yes", ir.DataType.BOOL, [])
    inner = ir.node("Relu", [x], name="innermost")
    for level in range(depth):
        bodies = [
            ir.Graph([], node.outputs, nodes=[node], name=f"{side}{level}")
            for side, node in (("then", inner), ("else", ir.node("Neg", [x], name=f"neg{level}")))
        ]
        attributes = {"then_branch": bodies[0], "else_branch": bodies[1]}
        inner = ir.node("If", [yes], attributes, name=f"if{level}")
    graph = ir.Graph([x, yes], inner.outputs, nodes=[inner], opset_imports={"": 21}, name="g")
    return ir.Model(graph, ir_version=10)


def function(name: str, calls: str) -> onnx.FunctionProto:
    node = helper.make_node(calls, ["a"], ["b"], domain="f" if calls.startswith("call") else "")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], [node], opsets)


def functions(**calls: str) -> Callable[[], ir.Model]:
    return changed(lambda m: m.functions.extend(function(n, c) for n, c in calls.items()))


def lost(model: ir.Model) -> None:
    stranger = ir.val("lost", ir.DataType.FLOAT, [4, 4])
    model.graph.node("matmul").replace_input_with(1, stranger)


def turned(model: ir.Model) -> None:
    graph = model.graph
    matmul = graph.node("matmul")
    graph.remove(matmul)
    graph.append(matmul)


def not_utf8() -> ir.Model:
    data = proto().SerializeToString().replace(b"matmul", b"\xff\xfetmul")
    return ir.from_proto(onnx.load_from_string(data))


def doubled() -> ir.Model:
    """Twenty functions, each of which calls the next one twice."""
    model = proto()
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    for i in range(20):
        called, domain = ("Relu", "") if i == 19 else (f"call{i + 1}", "f")
        nodes = [
            helper.make_node(called, [a], [b], domain=domain) for a, b in (("a", "h"), ("h", "b"))
        ]
        model.functions.append(helper.make_function("f", f"call{i}", ["a"], ["b"], nodes, opsets))
    model.graph.node.append(helper.make_node("call0", ["x"], ["z"], "many", domain="f"))
    return ir.from_proto(model)


CASES: dict[str, tuple[Check, Callable[[], ir.Model], str]] = {
    "bodies too deep": (
        check_depth,
        lambda: nested(MAX_DEPTH + 1),
        f"lies inside {MAX_DEPTH + 1} nodes",
    ),
    "an opset too old": (check_opset, lambda: ir.from_proto(proto(6)), "opset 6 .* too old"),
    "an opset too new": (check_opset, lambda: ir.from_proto(proto(27)), "opset 27 .* too new"),
    "no opset": (
        check_opset,
        changed(lambda m: m.opset_import.pop(0)),
        "no opset of domain ai.onnx",
    ),
    "no operator of ai.onnx": (
        check_opset,
        as_ir(empty),
        "there are none: leave this model",
    ),
    "a name that is no text": (check_texts, not_utf8, r"name of a node is no UTF-8 text: b'\\xff"),
    "bytes too few": (check_tensors, weight(raw_data=bytes(60)), "60 bytes; it wants 64"),
    "bytes for another type": (check_tensors, weight(data_type=11), "64 bytes; it wants 128"),
    "no type": (check_tensors, weight(data_type=0), "'w' has no type"),
    "a size below zero": (check_tensors, weight(dims=[4, -4]), r"below zero: \(4, -4\)"),
    "numbers too few": (check_tensors, weight(float_data=[1.0]), "1 numbers in float_data; .* 16"),
    "numbers in another field": (
        check_tensors,
        weight(int64_data=[1]),
        "has numbers in int64_data",
    ),
    "half as many int4": (
        check_tensors,
        weight(data_type=TensorProto.INT4, int32_data=[0] * 16),
        "16 numbers in int32_data; it wants 8",
    ),
    "texts too few": (
        check_tensors,
        weight(data_type=8, string_data=[b"a"]),
        "1 texts; it wants 16",
    ),
    "a text that is none": (
        check_tensors,
        weight(data_type=8, dims=[1], string_data=[b"\xff"]),
        "has a text that is no UTF-8",
    ),
    "a body that gives nothing": (
        check_bodies,
        changed(lambda m: m.graph.node[1].attribute[0].g.Clear()),
        "wants 1 results of each body; graph .* gives 0",
    ),
    "a matrix of rank 0": (
        check_ranks,
        changed(lambda m: m.graph.initializer[0].CopyFrom(SCALAR)),
        "of rank 0 as input 1; it takes rank 1 or more",
    ),
    "an attribute that is no text": (
        check_signatures,
        changed(lambda m: m.graph.node.append(RESIZE)),
        "attribute 'mode' is no UTF-8 text",
    ),
    "an initializer without data": (
        check_initializers_have_data,
        as_ir(lambda m: setattr(m.graph.initializers["w"], "const_value", None)),
        "'w' has no tensor",
    ),
    "two inputs of one name": (
        check_ends,
        changed(lambda m: m.graph.input.append(m.graph.input[0])),
        "two inputs 'x'",
    ),
    "an input without a type": (
        check_ends,
        changed(lambda m: m.graph.input[0].ClearField("type")),
        "'x' of the model has no type",
    ),
    "an output without a name": (
        check_ends,
        changed(lambda m: m.graph.output[0].ClearField("name")),
        "output 0 of graph 'g' has no name",
    ),
    "two values of one name": (
        check_names_are_unique,
        as_ir(lambda m: setattr(m.graph.node("join").outputs[0], "name", "h")),
        "two values of graph 'g' are named 'h'",
    ),
    "an input that nobody makes": (
        check_origins,
        as_ir(lost),
        "input 'lost' of node MatMul 'matmul' is neither",
    ),
    "an input that another body makes": (
        check_origins,
        changed(lambda m: m.graph.node[2].input.__setitem__(0, "then")),
        "input 'then' of node Concat 'join' is neither",
    ),
    "an output that nobody makes": (
        check_origins,
        changed(lambda m: setattr(m.graph.output[0], "name", "z")),
        "output 'z' of graph 'g' is made by no node",
    ),
    "an output of a body that the graph around it makes": (
        check_origins,
        changed(lambda m: setattr(m.graph.node[1].attribute[0].g.output[0], "name", "h")),
        "output 'h' of graph '(then|else)' is made by no node",
    ),
    "nodes out of order": (check_order, as_ir(turned), "reads the output of a later node"),
    "a body that reads what its own node gives": (
        check_order,
        changed(lambda m: m.graph.node[1].attribute[0].g.node[0].input.__setitem__(0, "c")),
        "Neg '(then|else)_neg' reads the output of a later node",
    ),
    "a function that calls itself": (
        check_functions,
        functions(call1="call1"),
        "function 'f.call1' calls itself",
    ),
    "functions in a circle": (
        check_functions,
        functions(call1="call2", call2="call3", call3="call1"),
        "calls itself, or one that does",
    ),
    "functions that are a million nodes": (
        check_functions,
        doubled,
        f"inlined the model has .* nodes; onnxq reads {MAX_NODES:,}",
    ),
    "a missing input": (
        check_signatures,
        changed(lambda m: m.graph.node[0].input.pop()),
        "node MatMul 'matmul' has no input 1, 'B'",
    ),
    "an input that is left out": (
        check_signatures,
        changed(lambda m: m.graph.node[0].input.__setitem__(0, "")),
        "node MatMul 'matmul' has no input 0, 'A'",
    ),
    "inputs too few": (
        check_signatures,
        changed(lambda m: m.graph.node[2].ClearField("input")),
        "node Concat 'join' has 0 inputs; it needs 1",
    ),
    "an input too many": (
        check_signatures,
        changed(lambda m: m.graph.node[0].input.append("x")),
        "node MatMul 'matmul' has input 'x' in slot 2; MatMul has 2 inputs",
    ),
    "no output": (
        check_signatures,
        changed(lambda m: m.graph.node[1].attribute[0].g.node[0].ClearField("output")),
        "has no output 0, 'Y'",
    ),
    "a missing attribute": (
        check_signatures,
        changed(lambda m: m.graph.node[2].ClearField("attribute")),
        "node Concat 'join' has no attribute 'axis'",
    ),
    "a misspelt attribute": (
        check_signatures,
        changed(lambda m: setattr(m.graph.node[2].attribute[0], "name", "axes")),
        "attribute 'axis'|Did you mean 'axis'",
    ),
    "an attribute of another type": (
        check_signatures,
        changed(
            lambda m: m.graph.node[2].attribute[0].CopyFrom(helper.make_attribute("axis", 1.0))
        ),
        "attribute 'axis' is of type FLOAT; .* wants INT",
    ),
}


@pytest.mark.parametrize(("check", "make", "words"), CASES.values(), ids=CASES)
def test_problem_is_found_and_named(check: Check, make: Callable[[], ir.Model], words: str) -> None:
    model = make()
    assert re.search(words, str(next(check(model))))
    with pytest.raises(ModelError, match="the model: "):
        check_model(model, "the model")


def test_every_check_has_a_case_here() -> None:
    elsewhere = {check_external_data}  # test_external_data.py
    assert {check for check, _, _ in CASES.values()} | elsewhere == set(CHECKS)


@pytest.mark.parametrize("make", [proto, network])
def test_a_good_model_passes(make: Callable[[], onnx.ModelProto]) -> None:
    check_model(ir.from_proto(make()), "the model")


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint32, np.uint64, np.float16, np.bool_])
def test_weights_of_every_type_pass_in_their_own_field(dtype: type[np.generic]) -> None:
    array = np.ones((2, 3), dtype)
    model = proto()
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model.graph.initializer.append(numpy_helper.from_array(array, "raw"))
    model.graph.initializer.append(helper.make_tensor("typed", kind, [2, 3], array.reshape(-1)))
    check_model(ir.from_proto(model), "the model")


def test_bodies_that_lie_deep_pass() -> None:
    check_model(nested(MAX_DEPTH), "the model")


@pytest.mark.parametrize("count", [4000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_a_long_chain_is_read(count: int) -> None:
    """Neither the door nor what loads recurses along it."""
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"n{i}") for i in range(count)]
    ends = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [2]) for i in (0, count)]
    graph = helper.make_graph(nodes[::-1], "chain", ends[:1], ends[1:])  # to be sorted, too
    loaded = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    assert [loaded.graph.node(0).name, loaded.graph.node(-1).name] == ["n0", f"n{count - 1}"]


def test_sizes_below_zero_are_dynamic() -> None:
    model = proto()
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    made = ir.from_proto(model)
    for loaded in (load(model), load(made)):
        shape = loaded.graph.inputs[0].shape
        assert shape is not None
        assert [size if isinstance(size, int) else None for size in shape] == [None, 4]
    assert made.graph.inputs[0].shape == [-1, 4]  # the caller's model stays as it is


def test_what_a_foreign_domain_wants_is_not_known_here() -> None:
    model = proto()
    model.graph.node[0].domain = "f"
    del model.graph.node[0].input[:]
    check_model(ir.from_proto(model), "the model")


def test_functions_of_one_name_are_refused() -> None:
    model = proto()
    model.functions.extend([function("call1", "Relu"), function("call1", "Neg")])
    with pytest.raises(ModelError, match="two functions have one name"):
        load(model)


def test_no_schema_is_known_in_an_opset_beyond_32_bits() -> None:
    assert schema_of("com.microsoft", "QLinearAdd", 2**31) is None
    assert signature_of("com.microsoft", "NoSuchOperator", 2**31) is None

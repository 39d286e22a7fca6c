from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from onnxq import targets
from onnxq.dtypes import INT8, INT16, UINT8, UINT16, QDType
from onnxq.observers import MinMaxObserver
from onnxq.operator import Float
from onnxq.ort import facts
from onnxq.ort.facts import Fact
from onnxq.ort.version import OLDEST
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig, default_qconfig_mapping
from onnxq.static.insertion.candidates import UNBOUNDED, Candidate, find_candidates
from onnxq.static.insertion.context import Context, Rules

CONSTANTS: dict[str, npt.NDArray[np.generic]] = {
    "w": np.ones((4, 4, 1, 1), np.float32),
    "m": np.ones((4, 4), np.float32),
    "vector": np.ones(4, np.float32),
    "matrix": np.ones((1, 4), np.float32),
    "low": np.array(-1, np.float32),
    "six": np.array(6, np.float32),
}
VNNI = targets.find("x86-vnni")


def found(
    body: str,
    x: str = "float[2,4] x",
    outputs: str = "float[2,4] y",
    qconfig: QConfigMapping | None = None,
) -> tuple[dict[str, Candidate], dict[str, str]]:
    """(op type -> candidate, op type -> reason to stay float)."""
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({x}) => ({outputs}) {{ {body} }}'
    model = ir.from_onnx_text(text)
    named = {v.name: v for n in model.graph.all_nodes() for v in n.inputs if v is not None}
    for name in CONSTANTS.keys() & named.keys():
        named[name].const_value = ir.tensor(CONSTANTS[name], name=name)
        named[name].type = ir.TensorType(ir.DataType.FLOAT)
        named[name].shape = ir.Shape(CONSTANTS[name].shape)
        model.graph.register_initializer(named[name])
    for i, node in enumerate(model.graph.all_nodes()):
        node.name = node.name or f"n{i}"
        for value in node.outputs:
            value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
    mapping = qconfig or default_qconfig_mapping()
    candidates, floats = find_candidates(
        Context(model, Rules.of_model(model), VNNI, mapping), mapping
    )
    assert all(isinstance(reason, Float) for reason in floats.values())
    return (
        {node.op_type: candidate for node, candidate in candidates.items()},
        {node.op_type: verdict.reason.words for node, verdict in floats.items()},
    )


def folded(candidate: Candidate) -> list[str]:
    return [node.op_type for node, _ in candidate.folded]


def test_relu_and_clip_fold_into_one_interval() -> None:
    candidates, _ = found("p = MatMul(x, m) c = Clip(p, low, six) y = Relu(c)")
    assert list(candidates) == ["MatMul"]
    assert folded(candidates["MatMul"]) == ["Clip", "Relu"]
    assert candidates["MatMul"].clamp == (0.0, 6.0)
    assert [value.name for value in candidates["MatMul"].results] == ["y"]


def test_a_vector_bias_folds_into_its_matmul_which_needs_no_q() -> None:
    candidates, _ = found("p = MatMul(x, m) y = Add(p, vector)")
    assert list(candidates) == ["MatMul"]
    assert folded(candidates["MatMul"]) == ["Add"]
    assert not candidates["MatMul"].needs_output
    assert candidates["MatMul"].clamp == UNBOUNDED


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("p = MatMul(x, m) y = Add(p, matrix)", "float[2,4] y"),
        ("p = MatMul(x, m) y = Add(p, six)", "float[2,4] y"),
        ("p = MatMul(x, x2) y = Add(p, vector)", "float[2,4] y"),
        ("p = MatMul(x, m) y = Add(p, x)", "float[2,4] y"),
        ("p = MatMul(x, m) y = Add(p, p)", "float[2,4] y"),
        ("p = MatMul(x, m) y = Add(p, vector)", "float[2,4] y, float[2,4] p"),
        ("p = MatMul(x, m) y = Add(p, vector) z = Neg(p)", "float[2,4] y, float[2,4] z"),
    ],
    ids=[
        "matrix",
        "scalar",
        "no constant B",
        "activation",
        "doubled",
        "graph output",
        "read twice",
    ],
)
def test_an_add_that_is_no_bias_stays_a_candidate(body: str, outputs: str) -> None:
    candidates, _ = found(body, "float[2,4] x, float[4,4] x2", outputs)
    assert candidates["MatMul"].folded == []
    assert "Add" in candidates


def test_a_relu_whose_input_others_read_does_not_fold() -> None:
    candidates, _ = found("p = MatMul(x, m) r = Relu(p) y = Add(r, p)", outputs="float[2,4] y")
    assert candidates["MatMul"].folded == []
    assert candidates["Relu"].rule.clamp == (0.0, float("inf"))


def test_a_relu_does_not_fold_into_what_only_copies() -> None:
    candidates, _ = found("t = Transpose(x) y = Relu(t)", outputs="float[4,2] y")
    assert candidates["Transpose"].folded == []


@pytest.mark.parametrize(
    ("body", "x", "op", "reason"),
    [
        (
            "y = MatMul(x, m)",
            "double[2,4] x",
            "MatMul",
            "it computes in double: integers stand for",
        ),
        ("y = Det(x)", "float[4,4] x", "Det", "no integer form of Det"),
        ("y = local.Mine(x)", "float[2,4] x", "Mine", "no integer form of local.Mine"),
        ("y = Conv(x, v)", "float[1,4,2,2] x, float[4,4,1,1] v", "Conv", "computed at run time"),
    ],
    ids=["type", "unknown", "domain", "weight"],
)
def test_a_node_that_cannot_run_in_integers_says_why(
    body: str, x: str, op: str, reason: str
) -> None:
    _, floats = found(body, x, outputs="float[2,4] y")
    assert reason in floats[op]


def test_what_the_qconfig_leaves_out_stays_float() -> None:
    body = "p = MatMul(x, m) y = Relu(p)"
    by_node, floats = found(body, qconfig=default_qconfig_mapping().set_node("n0", None))
    assert list(by_node) == ["Relu"]
    assert floats["MatMul"] == "the qconfig leaves it in float"
    by_tensor, floats = found(body, qconfig=default_qconfig_mapping().set_tensor("x", None))
    assert list(by_tensor) == ["Relu"]
    assert floats["MatMul"] == "the qconfig leaves tensor 'x' in float"


def test_a_slow_operator_is_quantized_only_where_it_is_named() -> None:
    slow = min(VNNI.slow_in_integers)
    base = default_qconfig_mapping()
    body = f"y = {slow}(x)"
    _, floats = found(body)
    assert "of its float speed; name it in the qconfig" in floats[slow]
    candidates, _ = found(body, qconfig=base.set_op_type(slow, default_qconfig))
    assert list(candidates) == [slow]


def test_what_the_oldest_onnxruntime_lacks_on_integers_is_quantized_only_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = "y = Max(x, m)"
    assert list(found(body)[0]) == ["Max"]
    lacking = (*facts.FACTS, Fact("Max", lacks=frozenset({ir.DataType.UINT8})))
    monkeypatch.setattr(facts, "_by_name", lambda: {fact.op_type: (fact,) for fact in lacking})
    _, floats = found(body)
    version = ".".join(map(str, OLDEST))
    said = f"ONNX Runtime {version}, the oldest supported one, has no Max on"
    assert floats["Max"].startswith(said)
    named = default_qconfig_mapping().set_op_type("Max", default_qconfig)
    assert list(found(body, qconfig=named)[0]) == ["Max"]
    assert list(found("y = ReduceMax(x)", outputs="float[1,1] y")[0]) == ["ReduceMax"]


def test_bodies_of_loops_stay_float() -> None:
    _, floats = found(
        "[loop] y = Loop(n, k, x) <body = b (int64 i, bool c, float[2,4] s)"
        " => (bool d, float[2,4] r) { d = Identity(c) r = MatMul(s, m) }>",
        "float[2,4] x, int64 n, bool k",
    )
    assert "inside the body of Loop 'loop'" in floats["MatMul"]


NARROW = MinMaxObserver.with_args(dtype=INT8)


@pytest.mark.parametrize(
    ("activations", "weights", "reason"),
    [
        (UINT16, INT8, "uint16 activations with int8 weights"),
        (UINT8, INT16, "uint8 activations with int16 weights"),
    ],
    ids=str,
)
def test_what_is_lowered_to_an_integer_kernel_stays_float_where_there_is_none(
    activations: QDType, weights: QDType, reason: str
) -> None:
    entry = QConfig(NARROW.with_args(dtype=activations), NARROW.with_args(dtype=weights))
    candidates, floats = found(
        "y = ConvTranspose(x, w)",
        "float[1,4,2,2] x",
        "float[1,4,2,2] y",
        qconfig=QConfigMapping(entry),
    )
    assert not candidates
    assert reason in floats["ConvTranspose"]


def test_relu_folds_into_what_is_lowered_to_an_integer_kernel() -> None:
    candidates, _ = found(
        "t = ConvTranspose(x, w) y = Relu(t)", "float[1,4,2,2] x", "float[1,4,2,2] y"
    )
    assert folded(candidates["ConvTranspose"]) == ["Relu"]


def test_a_sequence_of_floats_is_no_tensor_of_floats() -> None:
    named = QConfigMapping().set_op_type("Identity", default_qconfig)
    _, floats = found("y = Identity(x)", "seq(float[4]) x", "seq(float[4]) y", named)
    assert floats == {"Identity": "'x' is no tensor (it is a sequence or an optional)"}

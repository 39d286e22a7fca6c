from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxq.dtypes import UINT8
from onnxq.errors import ModelError
from onnxq.observers import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    Observer,
    ObserverSpec,
)
from onnxq.operator import Float, OperatorLimit
from onnxq.qconfig import (
    QConfig,
    QConfigMapping,
    default_qconfig_mapping,
    onnxq_default_qconfig,
)
from onnxq.qparams import QParams, per_tensor
from onnxq.static.calibrate import calibrate
from onnxq.static.choosing.proposals import in_float
from onnxq.static.deciders import decided_again
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import images, model, weights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from onnxq.static.prepared import Prepared

WEIGHT = onnxq_default_qconfig.weight_observer


class FixedObserver(Observer):
    """A scale that needs no data."""

    def __init__(self, scale: float = 0.05) -> None:
        super().__init__()
        self.scale = scale

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        pass

    def merge(self, other: Self) -> Self:
        return self._fresh_for(other)

    def calculate_qparams(self) -> QParams:
        return per_tensor(self.scale, 128, self.dtype)

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        return {}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        pass


def convs() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b"], ["r"], "first"),
        helper.make_node("Conv", ["r", "w2"], ["y"], "last"),
    ]
    constants = {"w1": weights(1, 4, 3, 1, 1), "w2": weights(2, 4, 4, 1, 1), "b": weights(3, 4)}
    return model(nodes, constants, {"x": ["N", 3, 8, 8]})


def planned(
    source: onnx.ModelProto, activation: ObserverSpec, scale: float = 1.0
) -> tuple[Prepared, Plan]:
    prepared = prepare(source, QConfigMapping(QConfig(activation, WEIGHT)))
    statistics = calibrate(prepared, [{"x": images(2) * np.float32(scale)}])
    return prepared, plan(prepared, statistics)


def test_a_users_fixed_scale_is_taken() -> None:
    _, made = planned(convs(), FixedObserver.with_args(scale=0.08))
    assert made.tensors["x"] == per_tensor(0.08, 128, UINT8)
    assert set(made.weights) == {"first", "last"}


def test_a_bounded_tensor_whose_node_became_float_has_its_bounds() -> None:
    made = model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="first"),
            helper.make_node("Tanh", ["c"], ["t"], name="tanh"),
            helper.make_node("Conv", ["t", "v"], ["y"], name="second"),
        ],
        {"w": weights(1, 4, 3, 3, 3), "v": weights(1, 4, 4, 3, 3)},
        {"x": ["N", 3, 8, 8]},
    )
    prepared = prepare(made)
    statistics = calibrate(prepared, {"x": images(2)})
    assert "t" not in statistics.observers
    node = next(n for n in prepared.model.graph if n.name == "tanh")
    left = in_float(prepared.qconfig, [node], OperatorLimit("its times"))
    later = decided_again(prepared, "by_time", left)
    assert isinstance(later.decisions["tanh"], Float)
    found = plan(later, statistics).tensors["t"]
    np.testing.assert_allclose(found.scale, 2 / 255, rtol=5e-3)


def test_a_noop_observer_leaves_float_and_is_the_reason() -> None:
    _, made = planned(convs(), NoopObserver.with_args())
    for decision in made.decisions.values():
        assert isinstance(decision, Float)
        assert "NoopObserver" in decision.reason.words
        assert "never observed" not in decision.reason.words


def small() -> onnx.ModelProto:
    """Values of 1e-9 throughout, the bias too."""
    source = convs()
    (bias,) = (t for t in source.graph.initializer if t.name == "b")
    bias.CopyFrom(numpy_helper.from_array(weights(3, 4) * np.float32(1e-9), "b"))
    return source


def test_small_activations_keep_their_integers_by_default() -> None:
    prepared, made = planned(small(), onnxq_default_qconfig.activation_observer, 1e-9)
    assert made.notes == ()
    feeds = {"x": images(2) * np.float32(1e-9)}
    outputs = [
        np.asarray(onnxruntime.InferenceSession(m.SerializeToString()).run(None, feeds)[0])
        for m in (small(), ir.to_proto(rewrite(prepared, made)))
    ]
    # an 8-bit result is within a few steps: 3% of the largest value
    assert np.abs(outputs[0] - outputs[1]).max() < 0.03 * np.abs(outputs[0]).max()


def test_a_scale_that_the_floor_decided_is_noted() -> None:
    _, made = planned(small(), MinMaxObserver.with_args(), 1e-9)
    assert any(n.startswith("tensor 'x': its values are so small") for n in made.notes)
    assert planned(convs(), MinMaxObserver.with_args())[1].notes == ()


@pytest.mark.parametrize(
    "spec",
    [
        onnxq_default_qconfig.activation_observer,
        MinMaxObserver.with_args(),
        MovingAverageMinMaxObserver.with_args(),
    ],
)
def test_a_tensor_of_zeros_gets_torchs_scale_and_a_note(spec: ObserverSpec) -> None:
    _, made = planned(convs(), spec, 0.0)
    assert made.tensors["x"].scale == np.float32(2**-23)
    assert any(n.startswith("tensor 'x' was 0 in every sample: its scale") for n in made.notes)
    assert not any("so small" in note for note in made.notes)


def test_a_constant_that_is_no_number_is_named() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first"),
        helper.make_node("Max", ["a", "k"], ["m"], "greater"),
        helper.make_node("Conv", ["m", "w2"], ["y"], "last"),
    ]
    constants = {
        "w1": weights(1, 4, 3, 1, 1),
        "w2": weights(2, 4, 4, 1, 1),
        "k": weights(3, 1, 4, 1, 1),
    }
    qconfig = default_qconfig_mapping().set_op_type("Max", onnxq_default_qconfig)
    prepared = prepare(model(nodes, constants, {"x": ["N", 3, 8, 8]}), qconfig)
    statistics = calibrate(prepared, [{"x": images(1)}])
    bad = ir.Tensor(np.full((1, 4, 1, 1), -np.inf, np.float32))
    prepared.model.graph.initializers["k"].const_value = bad
    with pytest.raises(ModelError, match=r"constant 'k': .*tensors: \{k: null\}"):
        plan(prepared, statistics)


def branches() -> ir.Model:
    source = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[N,4] x, bool c) => (float[N,4] y)'
        " <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {"
        " y = If (c) <then_branch = a () => (float[N,4] p) { p = MatMul(x, w) },"
        " else_branch = b () => (float[N,4] q) { m = MatMul(x, w) q = Relu(m) }> }"
    )
    source.graph.node(0).name = "choice"
    return source


def test_a_branch_all_in_float_that_no_sample_took_is_noted() -> None:
    source = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[N,4] x, bool c) => (float[N,4] y)'
        " <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {"
        " i = If (c) <then_branch = a () => (float[N,4] p) { m = MatMul(x, w) p = Relu(m) },"
        " else_branch = b () => (float[N,4] q) { q = Tanh(x) }>"
        " y = MatMul(i, w) }"
    )
    source.graph.node(0).name = "choice"
    prepared, x = prepare(source), weights(1, 2, 4)
    notes = plan(prepared, calibrate(prepared, [{"x": x, "c": np.array(True)}])).notes
    assert notes == (
        "If 'choice': no sample took its else_branch, so that ranges behind the If are those of "
        "the other branch. Add samples that take it.",
    )
    both = [{"x": x, "c": np.array(taken)} for taken in (True, False)]
    assert plan(prepared, calibrate(prepared, both)).notes == ()


@pytest.mark.parametrize(("taken", "other"), [(True, "else_branch"), (False, "then_branch")])
def test_a_branch_that_no_sample_took_is_noted(taken: bool, other: str) -> None:
    prepared = prepare(branches())
    x = weights(1, 2, 4)
    statistics = calibrate(prepared, [{"x": x, "c": np.array(taken)}])
    notes = plan(prepared, statistics).notes
    both = calibrate(
        prepared, [{"x": x, "c": np.array(not taken)}], statistics=statistics, first_batch=1
    )
    assert plan(prepared, both).notes == ()
    if other == "else_branch":
        assert notes == (
            "If 'choice': no sample took its else_branch, which stays in float. Add samples that "
            "take it.",
        )

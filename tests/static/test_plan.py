from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq import targets
from onnxq.affine import quantize
from onnxq.dtypes import UINT8
from onnxq.errors import CalibrationError
from onnxq.observers import MinMaxObserver, NarrowRangeObserver, Observer
from onnxq.operator import Float
from onnxq.qconfig import QConfig, default_qconfig_mapping
from onnxq.qparams import QParams
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.targets.bias_preserving import LARGEST_SUM
from onnxq.targets.reduce_range import ReducedRange
from tests.static.planned import LARGE, conv_name, model, planned

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.static.prepared import Prepared


def pair_sums(made: Plan, prepared: Prepared) -> npt.NDArray[np.int64]:
    """The largest sum of two neighbouring integers of one sign, in ONNX Runtime's order; (O,)."""
    value = prepared.model.graph.initializers["w"].const_value
    assert value is not None
    weight = made.weights[conv_name(made)]
    integers = quantize(value.numpy(), weight.qparams).astype(np.int64)
    assert weight.integer_limit is not None
    integers = np.clip(integers, -weight.integer_limit, weight.integer_limit)
    rows = integers.transpose(0, 2, 3, 1).reshape(len(integers), -1)
    even = rows[:, : rows.shape[1] // 2 * 2].reshape(len(rows), -1, 2)
    above = np.maximum(even, 0).sum(axis=2).max(axis=1)
    below = np.maximum(-even, 0).sum(axis=2).max(axis=1)
    return np.asarray(np.maximum(above, below))


def test_reducing_everywhere_halves_the_weight_range() -> None:
    vnni, _, _ = planned(source := model())
    portable, _, _ = planned(source, target="portable", reduce_range="everywhere")
    name = conv_name(portable)
    ratio = portable.weights[name].qparams.scale / vnni.weights[conv_name(vnni)].qparams.scale
    np.testing.assert_allclose(ratio, 127 / 64, rtol=1e-6)
    assert portable.weights[name].integer_limit == 64
    count = ratio.size
    assert portable.reductions == {name: ReducedRange(count, count, 127 / 64, 127 / 64)}


def test_the_portable_target_holds_back_the_channels_whose_pairs_need_it() -> None:
    vnni, prepared, _ = planned(source := model(LARGE))
    portable, _, _ = planned(source, target="portable")
    name = conv_name(portable)
    ratio = portable.weights[name].qparams.scale / vnni.weights[conv_name(vnni)].qparams.scale
    before = pair_sums(vnni, prepared)
    assert before.max() > LARGEST_SUM >= pair_sums(portable, prepared).max()
    np.testing.assert_array_equal(ratio > 1, before > LARGEST_SUM)
    assert ratio.max() < 127 / 64
    assert portable.reductions[name].channels == np.count_nonzero(ratio > 1)
    assert portable.reductions[name].largest == pytest.approx(ratio.max())
    assert vnni.reductions == {}


def test_the_portable_target_applies_to_documented_weight_observers_too() -> None:
    base = default_qconfig_mapping()
    weight = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric")
    mine = base.set_global(QConfig(MinMaxObserver.with_args(), weight))
    made, prepared, _ = planned(model(LARGE), mine, "portable")
    assert pair_sums(made, prepared).max() == LARGEST_SUM
    made, prepared, _ = planned(model(), mine, "portable", "everywhere")
    value = prepared.model.graph.initializers["w"].const_value
    assert value is not None
    absmax = np.abs(value.numpy()).max()
    assert made.weights[conv_name(made)].qparams.scale == np.float32(absmax) / np.float32(64)


def test_an_observed_reduction_wants_to_know_what_saturated() -> None:
    with pytest.raises(CalibrationError, match="'observed' needs the samples"):
        planned(model(), target="portable", reduce_range="observed")
    assert planned(model(), target="x86-vnni", reduce_range="observed")[0].weights


def test_only_channels_that_saturated_give_up_range() -> None:
    _, prepared, statistics = planned(source := model(LARGE), target="portable")
    vnni, _, _ = planned(source)
    observed = prepare(source, None, targets.find("portable").with_reduce_range("observed"))
    none = plan(observed, statistics, saturated={})
    some = plan(observed, statistics, saturated={"w": {0}})
    wanted, name = vnni.weights[conv_name(vnni)].qparams.scale, conv_name(some)
    np.testing.assert_array_equal(none.weights[name].qparams.scale, wanted)
    raised = some.weights[name].qparams.scale > wanted
    assert set(np.flatnonzero(raised)) == {0}
    assert pair_sums(some, prepared)[0] <= LARGEST_SUM < pair_sums(none, prepared)[0]


def test_activations_are_uint8_and_relu_has_zero_point_0() -> None:
    made, _, _ = planned(model())
    assert {p.dtype for p in made.tensors.values()} == {UINT8}
    assert made.tensors["y"].zero_point == 0
    assert made.integer_bounds == {}


def test_statistics_of_another_model_are_refused() -> None:
    _, prepared, _ = planned(model())
    _, _, statistics = planned(model())  # other random weights
    with pytest.raises(CalibrationError, match="another model"):
        plan(prepared, statistics)


def test_plan_survives_its_file_exactly(tmp_path: Path) -> None:
    made, _, _ = planned(model())
    made.save(tmp_path / "p.json")
    loaded = Plan.load(tmp_path / "p.json")
    assert loaded == made
    assert loaded.decisions == made.decisions
    assert loaded.tensors == made.tensors


def test_a_plan_is_strict_json(tmp_path: Path) -> None:
    made, _, _ = planned(model())
    assert any(
        isinstance(d, Quantize) and d.rule.clamp == (0.0, math.inf) for d in made.decisions.values()
    )
    made.save(tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text()
    assert "Infinity" not in text
    assert Plan.load(tmp_path / "p.json").decisions == made.decisions


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"folded_into": null', '"folded_into": 3'),
        ('"granularity": "per_tensor"', '"granularity": "mine"'),
        ('"shape": []', '"shape": [2]'),
        ('"rule": {', '"rule": null, "more": {'),
    ],
)
def test_an_altered_plan_is_refused(tmp_path: Path, old: str, new: str) -> None:
    made, _, _ = planned(model())
    made.save(tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text()
    assert old in text
    (tmp_path / "p.json").write_text(text.replace(old, new))
    with pytest.raises(CalibrationError, match="not a plan"):
        Plan.load(tmp_path / "p.json")


def test_the_dynamic_part_holds_no_float_nodes() -> None:
    made, _, _ = planned(model())
    with pytest.raises(CalibrationError, match=r"dynamic\['n'\].*QuantizeDynamic"):
        Plan.from_dict({**made.to_dict(), "dynamic": {"n": {"float": "why"}}})


@pytest.mark.parametrize("content", ["", "{}", '{"format": "onnxq plan 0"}', "[1]"])
def test_file_that_is_no_plan_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(CalibrationError, match="not a plan"):
        Plan.load(tmp_path / "p.json")


def test_user_observer_gives_the_activation_qparams() -> None:
    class HalfObserver(MinMaxObserver):
        """Half of MinMax's scale."""

        def calculate_qparams(self) -> QParams:
            p = super().calculate_qparams()
            return QParams(p.scale * np.float32(0.5), p.zero_point, p.dtype)

    base = default_qconfig_mapping()
    ordinary = base.set_global(QConfig(MinMaxObserver.with_args(), NarrowRangeObserver.with_args()))
    halved = base.set_global(QConfig(HalfObserver.with_args(), NarrowRangeObserver.with_args()))
    source = model()
    one, two = planned(source, ordinary)[0], planned(source, halved)[0]
    assert two.tensors["x"].scale == one.tensors["x"].scale / 2
    assert issubclass(HalfObserver, Observer)


def test_every_node_has_a_decision_and_floats_have_reasons() -> None:
    made, prepared, _ = planned(model())
    assert list(made.decisions) == [node.name for node in prepared.model.graph]
    assert all(d.reason.words for d in made.decisions.values() if isinstance(d, Float))

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from onnxq.affine import quantize
from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.observers import MinMaxObserver, NarrowRangeObserver, Observer
from onnxq.operator import Float
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig_mapping
from onnxq.qparams import PerChannel, QParams
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.placing.decision import Quantize
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.targets.kept_sums import LARGEST_SUM
from onnxq.targets.range_reduction import Reduction

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Singles
    from onnxq.static.prepared import Prepared

RNG = np.random.default_rng(0)
# channels 0 and 3 have a pair of large weights of one sign; 1 of two signs, 2 in no pair
LARGE = np.array(
    [[1, 0.9, 0.1, 0.1], [1, -0.9, 0.1, 0.2], [0.1, 1, 0.9, 0], [-0.2, 0.3, -1, -0.2]], np.float32
).reshape(4, 4, 1, 1)


def model(weight: Singles | None = None, bias: Singles | None = None) -> ir.Model:
    """y = Relu(Conv(x, w, b)) for x float[N,4,5,5]."""
    graph = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 17]> g (float[N,4,5,5] x) => (float[N,4,5,5] y)'
        " { c = Conv(x, w, b) y = Relu(c) }"
    )
    arrays = {
        "w": weight if weight is not None else RNG.standard_normal((4, 4, 1, 1)).astype(np.float32),
        "b": bias if bias is not None else RNG.standard_normal(4).astype(np.float32),
    }
    for value in graph.graph.node(0).inputs[1:]:
        assert value is not None
        assert value.name
        value.const_value = ir.Tensor(arrays[value.name], name=value.name)
        value.type, value.shape = (
            ir.TensorType(ir.DataType.FLOAT),
            ir.Shape(arrays[value.name].shape),
        )
        graph.graph.register_initializer(value)
    return graph


def batches(n: int = 4) -> list[dict[str, Singles]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, 4, 5, 5)).astype(np.float32)} for _ in range(n)]


def planned(
    source: ir.Model,
    qconfig: QConfigMapping | None = None,
    target: str = "x86-vnni",
    range_reduction: str | None = None,
) -> tuple[Plan, Prepared, Statistics]:
    prepared = prepare(source, qconfig, target, range_reduction=range_reduction)
    statistics = calibrate(prepared, batches())
    return plan(prepared, statistics), prepared, statistics


def conv_name(made: Plan) -> str:
    return next(iter(made.weights))


def test_bias_has_scale_x_times_w_in_float32() -> None:
    made, _, _ = planned(model())
    name = conv_name(made)
    bias, weight = made.biases[name].qparams, made.weights[name].qparams
    assert bias.dtype == INT32
    np.testing.assert_array_equal(bias.scale, made.tensors["x"].scale * weight.scale)
    assert not bias.zero_point.any()


def test_weights_are_int8_per_output_channel() -> None:
    made, _, _ = planned(model())
    weight = made.weights[conv_name(made)]
    assert (weight.qparams.dtype, weight.qparams.granularity) == (INT8, PerChannel(0))
    assert weight.code_limit == 127


def pair_sums(made: Plan, prepared: Prepared) -> npt.NDArray[np.int64]:
    """The largest sum of two neighbouring codes of one sign, in ONNX Runtime's order; (O,)."""
    value = prepared.model.graph.initializers["w"].const_value
    assert value is not None
    weight = made.weights[conv_name(made)]
    codes = quantize(value.numpy(), weight.qparams).astype(np.int64)
    assert weight.code_limit is not None
    codes = np.clip(codes, -weight.code_limit, weight.code_limit)
    rows = codes.transpose(0, 2, 3, 1).reshape(len(codes), -1)
    even = rows[:, : rows.shape[1] // 2 * 2].reshape(len(rows), -1, 2)
    above = np.maximum(even, 0).sum(axis=2).max(axis=1)
    below = np.maximum(-even, 0).sum(axis=2).max(axis=1)
    return np.asarray(np.maximum(above, below))


def test_reducing_everywhere_halves_the_weight_range() -> None:
    vnni, _, _ = planned(source := model())
    portable, _, _ = planned(source, target="portable", range_reduction="everywhere")
    name = conv_name(portable)
    ratio = portable.weights[name].qparams.scale / vnni.weights[conv_name(vnni)].qparams.scale
    np.testing.assert_allclose(ratio, 127 / 64, rtol=1e-6)
    assert portable.weights[name].code_limit == 64
    count = ratio.size
    assert portable.reductions == {name: Reduction(count, count, 127 / 64, 127 / 64)}


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
        planned(model(), target="portable", range_reduction="observed")
    assert planned(model(), target="x86-vnni", range_reduction="observed")[0].weights


def test_only_channels_that_saturated_give_up_range() -> None:
    _, prepared, statistics = planned(source := model(LARGE), target="portable")
    vnni, _, _ = planned(source)
    observed = prepare(source, None, "portable", range_reduction="observed")
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
    assert made.code_bounds == {}


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


def test_nan_in_a_weight_names_the_weight() -> None:
    prepared = prepare(model(), None, "x86-vnni")
    statistics = calibrate(prepared, batches())
    weight = np.ones((4, 4, 1, 1), np.float32)
    weight[2, 1] = np.nan
    prepared.model.graph.initializers["w"].const_value = ir.Tensor(weight)
    with pytest.raises(ModelError, match=r"weight 'w'.*NaN"):
        plan(prepared, statistics)


def test_inf_in_a_bias_names_the_bias() -> None:
    prepared = prepare(model(), None, "x86-vnni")
    statistics = calibrate(prepared, batches())
    prepared.model.graph.initializers["b"].const_value = ir.Tensor(
        np.array([0, np.inf, 0, 0], np.float32)
    )
    with pytest.raises(ModelError, match=r"bias 'b'.*Inf"):
        plan(prepared, statistics)


def test_all_zero_channel_gets_a_positive_scale_and_a_bias_that_fits() -> None:
    weight = RNG.standard_normal((4, 4, 1, 1)).astype(np.float32)
    weight[1] = 0
    made, _, _ = planned(model(weight=weight, bias=np.array([0, 1e5, 0, 0], np.float32)))
    name = conv_name(made)
    assert (made.weights[name].qparams.scale > 0).all()
    assert abs(1e5 / made.biases[name].qparams.scale[1]) <= 2**30 * (1 + 1e-6)


class WideObserver(MinMaxObserver):
    """A user's own, which knows nothing of quant_max."""

    def __init__(self, qscheme: str = "per_tensor_symmetric") -> None:
        super().__init__(dtype="qint8", qscheme=qscheme)


def test_weight_codes_that_the_target_cannot_run_are_refused() -> None:
    base = default_qconfig_mapping()
    mine = base.set_global(QConfig(MinMaxObserver.with_args(), WideObserver.with_args()))
    with pytest.raises(QConfigError, match=r"outside \[-64, 64\]"):
        planned(model(), mine, "portable", "everywhere")
    affine = WideObserver.with_args(qscheme="per_tensor_affine")
    with pytest.raises(QConfigError, match=r"outside \[-64, 64\]"):
        planned(model(), base.set_global(QConfig(MinMaxObserver.with_args(), affine)), "portable")
    made, _, _ = planned(model(), mine, "x86-vnni")
    assert made.weights


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
    assert all(d.reason for d in made.decisions.values() if isinstance(d, Float))

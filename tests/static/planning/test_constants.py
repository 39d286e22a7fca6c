from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper

from onnxq import targets
from onnxq.affine import quantize
from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.errors import ModelError, QConfigError
from onnxq.graph.walk import node_name
from onnxq.graph.weights import constant_array
from onnxq.observers import (
    MinMaxObserver,
    NarrowRangeObserver,
    PerChannelMinMaxObserver,
    weight_observation,
)
from onnxq.observers.weight_observation import (
    WeightKey,
    notes_on_integers_outside,
    observe_weight,
)
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.qparams import MAX_BIAS_INTEGER, PerChannel, PerTensor, QParams, per_tensor
from onnxq.static.calibrate import calibrate
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import plan
from onnxq.static.planning.constants import (
    PlannedBias,
    PlannedWeight,
    folded_bias,
    plan_bias,
    plan_weight,
    weight_key,
    with_room,
)
from onnxq.static.prepare import prepare
from tests.examples import ALL_INTEGERS, model, weights

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Singles
    from onnxq.operator import Rule
    from onnxq.static.prepared import Prepared

X = per_tensor(0.5, 128, UINT8)
SYMMETRIC = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric")
AFFINE = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_affine")
PER_CHANNEL = PerChannelMinMaxObserver.with_args(dtype="qint8", qscheme="per_channel_symmetric")


def prepared(
    weight: Singles,
    bias: Singles,
    spec: object = None,
    target: str = "x86-vnni",
    op: str = "Gemm",
    reduction: str = "worst-case",
) -> Prepared:
    """Two nodes that share weight and bias: y = op(op(x))."""
    nodes = [
        helper.make_node(op, ["x", "w", "b"], ["h"], "first"),
        helper.make_node(op, ["h", "w", "b"], ["y"], "second"),
    ]
    shape = ["N", weight.shape[0]] + ["H", "W"] * (op == "Conv")
    mapping = None if spec is None else mapped(spec)
    source = model(nodes, {"w": weight, "b": bias}, {"x": shape})
    return prepare(source, mapping, targets.find(target).with_reduce_range(reduction))


def mapped(spec: object) -> QConfigMapping:
    from onnxq.observers import ObserverSpec

    assert isinstance(spec, ObserverSpec)
    return QConfigMapping(QConfig(MinMaxObserver.with_args(), spec))


def rule_of(made: Prepared, node: ir.Node) -> Rule:
    decision = made.decisions[node_name(node)]
    assert isinstance(decision, Quantize)
    return decision.rule


def planned(made: Prepared) -> PlannedWeight:
    return with_notes(made)[0]


def with_notes(made: Prepared) -> tuple[PlannedWeight, list[str]]:
    node = made.model.graph.node(0)
    key = weight_key(made, node, rule_of(made, node))
    qparams, notes = observe_weight(weight_of(made), key)
    return plan_weight(key, qparams, made.model.graph.initializers[key.tensor]), notes


def biased(
    made: Prepared, scale: npt.NDArray[np.float32], x: QParams = X
) -> tuple[PlannedWeight, PlannedBias, list[str]]:
    node = made.model.graph.node(0)
    granularity = PerChannel(1) if scale.ndim else PerTensor()
    zero_point = np.zeros(scale.shape, np.int8)
    weight = PlannedWeight("w", QParams(scale, zero_point, INT8, granularity), 127)
    return plan_bias(node, rule_of(made, node), x, weight)


@pytest.mark.parametrize(("op", "shape", "axis"), [("Gemm", (4, 4), 1), ("Conv", (4, 4, 1, 1), 0)])
def test_scales_run_along_the_output_channels(op: str, shape: tuple[int, ...], axis: int) -> None:
    weight = weights(1, *shape)
    made = planned(prepared(weight, weights(2, 4), op=op))
    assert made.qparams.granularity == PerChannel(axis)
    absmax = np.abs(np.moveaxis(weight, axis, 0).reshape(4, -1)).max(axis=1)
    np.testing.assert_array_equal(made.qparams.scale, absmax / np.float32(127))


def test_a_tied_weight_is_observed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepared(weights(1, 4, 4), weights(2, 4))
    statistics = calibrate(made, [{"x": weights(3, 2, 4)}])
    calls: list[int] = []
    observe = NarrowRangeObserver.observe

    def counted(self: NarrowRangeObserver, x: npt.NDArray[np.generic], index: int) -> None:
        calls.append(index)
        observe(self, x, index)

    monkeypatch.setattr(NarrowRangeObserver, "observe", counted)
    first, second = plan(made, statistics).weights.values()
    assert first == second
    assert first.qparams is second.qparams
    assert calls == [0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused_by_name(bad: float) -> None:
    weight = weights(1, 4, 4)
    weight[1, 2] = bad
    with pytest.raises(ModelError, match="weight 'w' holds NaN or Inf"):
        planned(prepared(weight, weights(2, 4)))


@pytest.mark.parametrize("spec", [SYMMETRIC, PER_CHANNEL], ids=["tensor", "channel"])
def test_integers_of_documented_observers_stay_inside_the_targets_limit(spec: object) -> None:
    weight = weights(1, 4, 4)
    made = planned(prepared(weight, weights(2, 4), spec, "portable", reduction="everywhere"))
    assert made.integer_limit == 64
    assert np.abs(quantize(weight, made.qparams).astype(int)).max() == 64


def test_an_affine_observer_is_held_to_the_targets_limit_too() -> None:
    weight = np.linspace(0, 1, 16, dtype="f").reshape(4, 4)
    made = planned(prepared(weight, weights(2, 4), AFFINE, "portable"))
    integers = quantize(weight, made.qparams)
    assert (integers.min(), integers.max()) == (-64, 64)


def test_integers_that_the_target_cannot_run_exactly_are_refused() -> None:
    made = prepared(np.linspace(0, 1, 16, dtype="f").reshape(4, 4), weights(2, 4))
    key = WeightKey("w", 1, 64, AFFINE)
    full_range = per_tensor(1 / 255, -128, INT8)
    with pytest.raises(QConfigError, match=r"weight 'w': .* outside \[-64, 64\].*'x86-vnni'"):
        notes_on_integers_outside(weight_of(made), full_range, key)


def weight_of(made: Prepared) -> Singles:
    return constant_array(made.model.graph.initializers["w"])


@pytest.mark.parametrize("chunk", [1, 3, 1 << 22])
def test_integers_of_minus_128_are_counted_and_noted(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_observation, "CHUNK_ELEMENTS", chunk)
    weight = np.linspace(0, 1, 16, dtype="f").reshape(4, 4)  # affine: 0 is the code -128
    made, notes = with_notes(prepared(weight, weights(2, 4), AFFINE, "x86-vnni"))
    count = int((quantize(weight, made.qparams) == -128).sum())
    assert count >= 1
    assert notes == [
        f"weight 'w': {count} of 16 integers of -128 were clipped to -127; sums with -128 wrap on "
        "ARM"
    ]


def test_a_bias_is_int32_at_the_product_of_the_scales() -> None:
    scale = np.array([0.5, 0.25, 1, 2], np.float32)
    weight, bias, notes = biased(prepared(weights(1, 4, 4), weights(2, 4)), scale)
    assert (bias.tensor, bias.qparams.dtype) == ("b", INT32)
    assert bias.qparams.granularity == PerChannel(0)
    np.testing.assert_array_equal(bias.qparams.scale, scale * np.float32(0.5))
    np.testing.assert_array_equal(weight.qparams.scale, scale)
    assert notes == []


def test_a_per_tensor_weight_has_a_per_tensor_bias() -> None:
    _, bias, _ = biased(prepared(weights(1, 4, 4), weights(2, 4)), np.array(0.5, np.float32))
    assert bias.qparams.granularity == PerTensor()
    assert bias.qparams.scale == np.float32(0.25)


def test_only_channels_whose_bias_leaves_int32_get_a_greater_weight_scale() -> None:
    values = np.array([1, 1e6, -1e6, 0], np.float32)
    scale = np.full(4, 1e-5, np.float32)
    weight, bias, notes = biased(prepared(weights(1, 4, 4), values), scale)
    assert (weight.qparams.scale > scale).tolist() == [False, True, True, False]
    integers = quantize(values, bias.qparams).astype(np.int64)
    assert np.abs(integers).max() <= MAX_BIAS_INTEGER * (1 + 2**-23)  # the scale is a float32
    assert integers[1] == -integers[2]
    assert notes == [
        "'first': the weight scale of 2 channel(s) was raised so that the bias fits int32 at "
        "x_scale * w_scale"
    ]


def test_one_scale_for_all_channels_is_raised_for_the_greatest_bias() -> None:
    values = np.array([1, -1e6, 1e3, 0], np.float32)
    made = prepared(weights(1, 4, 4), values)
    weight, bias, notes = biased(made, np.array(1e-5, np.float32))
    assert weight.qparams.scale > np.float32(1e-5)
    assert np.abs(quantize(values, bias.qparams).astype(np.int64)).max() <= MAX_BIAS_INTEGER * 1.001
    assert len(notes) == 1


def test_a_product_of_tiny_scales_is_no_zero() -> None:
    made = prepared(weights(1, 4, 4), np.zeros(4, np.float32))
    tiny = np.full(4, 2**-100, np.float32)
    _, bias, _ = biased(made, tiny, per_tensor(2**-100, 0, UINT8))
    assert (bias.qparams.scale == np.finfo(np.float32).tiny).all()


@pytest.mark.parametrize("values", [[0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0], [9e5, -1e-3, 0, 7]])
@pytest.mark.parametrize("x_scale", [0.5, 1e-7, 1e-30])
@pytest.mark.parametrize("per_channel", [True, False])
def test_an_added_vector_divided_by_the_scale_of_the_sums_stays_within_int32(
    values: list[float], x_scale: float, per_channel: bool
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b"], ["y"], "add"),
    ]
    bias = np.array(values, np.float32)
    source = model(nodes, {"w": weights(1, 4, 4), "b": bias}, {"x": ["N", 4]})
    made = prepare(source, ALL_INTEGERS, "x86-vnni")
    node = made.model.graph.node(0)
    scale = np.array([1e-12, 1e-20, 1e-38, 1e-2] if per_channel else 1e-20, np.float32)
    granularity = PerChannel(1) if per_channel else PerTensor()
    held = QParams(scale, np.zeros(scale.shape, np.int8), INT8, granularity)
    added = folded_bias(node, made.decisions)
    assert added is not None
    x = per_tensor(x_scale, 0, UINT8)
    weight, notes = with_room(node, added, x, PlannedWeight("w", held, 127))
    assert bool(notes) == bool((weight.qparams.scale > scale).any())
    with np.errstate(all="raise"):  # as ONNX Runtime computes: no 0 / 0
        integers = np.rint(bias / (x.scale * weight.qparams.scale))
    assert np.abs(integers).max() < 2**30 * 1.001


def test_an_added_vector_that_is_not_folded_needs_no_room() -> None:
    made = prepared(weights(1, 4, 4), weights(2, 4))
    assert folded_bias(made.model.graph.node(0), made.decisions) is None


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_bias_that_is_no_number_is_refused_by_name(bad: float) -> None:
    made = prepared(weights(1, 4, 4), np.array([0, bad, 0, 0], np.float32))
    with pytest.raises(ModelError, match="bias 'b' of 'first' holds NaN or Inf"):
        biased(made, np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("args", "top"), [({"quant_min": -7, "quant_max": 7}, 7), ({"reduce_range": True}, 64)]
)
def test_a_range_inside_the_limit_is_left_as_the_user_chose_it(
    args: dict[str, int], top: int
) -> None:
    weight = weights(1, 4, 4)
    spec = PER_CHANNEL.with_args(**args)
    portable = planned(prepared(weight, weights(2, 4), spec, "portable"))
    elsewhere = planned(prepared(weight, weights(2, 4), spec, "x86-vnni"))
    assert portable.qparams == elsewhere.qparams
    assert np.abs(quantize(weight, portable.qparams).astype(int)).max() == top


def test_only_the_end_beyond_the_limit_is_narrowed() -> None:
    weight = weights(1, 4, 4)
    spec = AFFINE.with_args(quant_min=-10, quant_max=100)
    integers = quantize(weight, planned(prepared(weight, weights(2, 4), spec, "portable")).qparams)
    assert (integers.min(), integers.max()) == (-10, 64)


@pytest.mark.parametrize(
    ("spec", "size", "noted"),
    [
        (
            SYMMETRIC,
            1e-8,
            "up to 1e-08, .* of MinMaxObserver, 1.19209e-07: integers reach 0 of 127",
        ),
        (PER_CHANNEL, 4e-6, "integers reach 34 of 127. Use NarrowRangeObserver, or a smaller eps"),
        (AFFINE, 1e-6, "integers reach 8 of 127"),
        (PER_CHANNEL, 1e-5, None),
        (SYMMETRIC, 0.0, None),
        (NarrowRangeObserver.with_args(), 1e-30, None),
        (SYMMETRIC.with_args(eps=2.0**-100), 1e-8, None),
    ],
)
def test_a_weight_that_the_least_scale_robs_of_its_integers_is_noted(
    spec: object, size: float, noted: str | None
) -> None:
    weight = np.where(np.arange(16).reshape(4, 4) % 2, size, -size).astype(np.float32)
    _, notes = with_notes(prepared(weight, weights(1, 4), spec))
    found = [note for note in notes if "least scale" in note]
    assert len(found) == (noted is not None)
    for note in found:
        assert re.search(f"^weight 'w': .*{noted}", note)

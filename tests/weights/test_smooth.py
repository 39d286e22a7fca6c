"""Smoothing in the flow: an equal float model that loses less in integers, or the same model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper, numpy_helper

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.saving import to_bytes
from onnxq.graph.walk import walk
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import (
    QConfigMapping,
    default_qconfig_mapping,
    onnxq_default_dynamic_qconfig,
)
from onnxq.samples import open_samples
from onnxq.weights import Smooth, improve_model
from onnxq.weights import smooth as smooth_module
from onnxq.weights.judgement import Judgement
from onnxq.weights.smoothing_sites import SmoothingSite, sites_of, with_smoothing_scales
from tests.examples import ALL_INTEGERS, model, weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    import onnx_ir as ir

    from onnxq.core.arrays import Reals, Singles
    from onnxq.weights.algorithm import EqualModel
    from onnxq.weights.smoothing import SiteChoice
    from onnxq.weights.smoothing_run import Flow


WIDTH, HEADS, STEPS = 16, 4, 6
DYNAMIC = QConfigMapping().set_global(
    replace(onnxq_default_dynamic_qconfig, precision=Precision.DYNAMIC_INT8)
)
OUTLIERS = [2, 9]


def encoder(gain: float = 30.0, *, pre_norm: bool = True) -> onnx.ModelProto:
    """LayerNormalization with outlying channels, MatMuls, attention, Relu, MatMuls.

    As in trained encoders, the weights behind are small where the channels are large.
    """
    node = helper.make_node
    scale = np.ones(WIDTH, np.float32)
    scale[OUTLIERS] = gain
    constants = {
        "scale": scale,
        "bias": weights(9, WIDTH),
        **{f"w{n}": weights(i, WIDTH, WIDTH) for i, n in enumerate("qkvo")},
        "bv": weights(10, WIDTH),
        "up": weights(11, WIDTH, 2 * WIDTH),
        "down": weights(12, 2 * WIDTH, WIDTH),
        "split": np.array([0, STEPS, HEADS, WIDTH // HEADS]),
        "merge": np.array([0, STEPS, WIDTH]),
    }
    for name in ("wq", "wk", "wv"):
        constants[name][OUTLIERS] /= gain
    nodes = [
        node("LayerNormalization", ["x", "scale", "bias"], ["n"], "norm"),
        *(node("MatMul", ["n", f"w{n}"], [f"{n}1"], f"matmul_{n}") for n in "qk"),
        node("MatMul", ["n", "wv"], ["v0"], "matmul_v"),
        node("Add", ["v0", "bv"], ["v1"], "bias_v"),
        *(node("Reshape", [f"{n}1", "split"], [f"{n}2"], f"split_{n}") for n in "qkv"),
        node("Transpose", ["q2"], ["q3"], "turn_q", perm=[0, 2, 1, 3]),
        node("Transpose", ["k2"], ["k3"], "turn_k", perm=[0, 2, 3, 1]),
        node("Transpose", ["v2"], ["v3"], "turn_v", perm=[0, 2, 1, 3]),
        node("MatMul", ["q3", "k3"], ["scores"], "scores"),
        node("Softmax", ["scores"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "v3"], ["c1"], "context"),
        node("Transpose", ["c1"], ["c2"], "turn_back", perm=[0, 2, 1, 3]),
        node("Reshape", ["c2", "merge"], ["c3"], "merge"),
        node("MatMul", ["c3", "wo"], ["o"], "matmul_o"),
        node("Add", ["x" if pre_norm else "n", "o"], ["s"], "residual"),
        node("MatMul", ["s", "up"], ["u"], "up"),
        node("Relu", ["u"], ["r"], "relu"),
        node("MatMul", ["r", "down"], ["y"], "down"),
    ]
    return model(nodes, constants, {"x": ["N", STEPS, WIDTH]})


def samples(count: int = 32) -> dict[str, Singles]:
    return {"x": np.random.default_rng(1).normal(size=(count, STEPS, WIDTH)).astype(np.float32)}


def outputs(made: ir.Model, feeds: dict[str, Singles]) -> Reals:
    with runtime.open_session(made, threads=1) as session:
        return session.run(feeds)[0].astype(np.float64)


def test_sites_fold_where_constants_ahead_take_the_factors_and_all_readers_undo_them() -> None:
    sites = {site.tensor: site.folds for site in sites_of(onnxq.prepare(encoder()))}
    assert sites == {"n": True, "c3": True, "s": False, "r": True}


def test_a_residual_reader_of_the_normalization_makes_it_a_mul() -> None:
    sites = {site.tensor: site.folds for site in sites_of(onnxq.prepare(encoder(pre_norm=False)))}
    assert sites["n"] is False


@pytest.mark.parametrize("pre_norm", [True, False])
def test_any_factors_leave_the_float_model_as_it_is(pre_norm: bool) -> None:
    prepared = onnxq.prepare(encoder(pre_norm=pre_norm))
    rng = np.random.default_rng(5)
    sizes = {"n": WIDTH, "c3": WIDTH, "s": WIDTH, "r": 2 * WIDTH}
    chosen = {site: np.exp2(rng.uniform(-4, 4, sizes[site.tensor])) for site in sites_of(prepared)}
    made = with_smoothing_scales(prepared.model, chosen)
    wanted, got = (outputs(m, samples(4)) for m in (prepared.model, made))
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_tensors_that_carry_factors_have_names_of_their_own() -> None:
    prepared = onnxq.prepare(encoder())
    made = with_smoothing_scales(
        prepared.model, {SmoothingSite("c3", ("matmul_o",), True): np.full(WIDTH, 2.0)}
    )
    names = {v.name for node, _ in walk(made.graph) for v in node.outputs}
    assert {"c3_divided", "c2_divided", "c1_divided", "v3_divided", "v1_divided"} <= names
    assert not {"c3", "c2", "c1", "v3", "v2", "v1", "v0"} & names
    assert {"q1", "k1", "n"} <= names


def test_outlying_channels_behind_a_normalization_gain_and_cost_no_node() -> None:
    prepared = onnxq.prepare(encoder())
    made = Smooth().improve(prepared, open_samples(onnxq.Samples(samples(), 4), prepared.inputs))
    kept = {outcome.place: outcome for outcome in made.outcomes if outcome.kept}
    assert kept["n"].gain_db is not None
    assert kept["n"].gain_db > 6
    assert len(list(made.model.graph)) <= len(list(prepared.model.graph)) + 1


def gain_db(source: onnx.ModelProto, qconfig: QConfigMapping) -> float:
    """Gain of the outputs by smoothing, on samples that nothing saw."""
    check = {"x": np.random.default_rng(9).normal(size=(64, STEPS, WIDTH)).astype(np.float32)}
    found = []
    for names in ((), ("smooth",)):
        made = onnxq.quantize(
            source,
            onnxq.Samples(samples(), batch_size=4),
            qconfig=qconfig.set_improve(names),
            check=onnxq.Check(check, repair=None),  # which would smooth what is low
        )
        assert made.verdict is not None
        found.append(made.verdict.outputs[0].sqnr_db or 0.0)
    return found[1] - found[0]


@pytest.mark.filterwarnings("ignore:output")  # 14.7 dB without: what smoothing is for
@pytest.mark.parametrize("pre_norm", [True, False])
def test_outputs_gain_three_decibels_on_samples_that_nothing_saw(pre_norm: bool) -> None:
    assert gain_db(encoder(pre_norm=pre_norm), default_qconfig_mapping()) > 3


@pytest.mark.filterwarnings("ignore:output")  # as above
@pytest.mark.parametrize("pre_norm", [True, False])
def test_smoothing_raises_the_sqnr_of_dynamic_int8_layers_as_much(pre_norm: bool) -> None:
    source = encoder(pre_norm=pre_norm)
    prepared = onnxq.prepare(source, DYNAMIC)
    assert {site.tensor: site.folds for site in sites_of(prepared)} == {
        site.tensor: site.folds for site in sites_of(onnxq.prepare(source))
    }
    assert gain_db(source, DYNAMIC) > 3


def test_a_saved_qconfig_and_the_same_samples_give_the_same_bytes() -> None:
    source, asked = encoder(pre_norm=False), default_qconfig_mapping().set_improve(["smooth"])

    def made(mapping: QConfigMapping) -> tuple[QConfigMapping, bytes]:
        prepared = onnxq.prepare(source, mapping)
        batches = open_samples(onnxq.Samples(samples(), 4), prepared.inputs)
        better = improve_model(prepared, batches)
        planned = onnxq.plan(
            better, onnxq.calibrate(better, onnxq.Samples(samples(), batch_size=4))
        )
        return planned.qconfig, to_bytes(onnxq.rewrite(better, planned))

    named, first = made(asked)
    assert "n_divide" in named.nodes
    assert made(QConfigMapping.from_yaml(named.to_yaml()))[1] == first


def test_a_model_without_linear_layers_is_left_as_it_is_with_the_reason() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    prepared = onnxq.prepare(model(nodes, {}, {"x": ["N", 4]}))
    rows = {"x": np.zeros((8, 4), np.float32)}
    made = Smooth().improve(prepared, open_samples(onnxq.Samples(rows, 1), prepared.inputs))
    assert made.model is prepared.model
    assert "no linear layer" in made.outcomes[0].why


def test_a_reader_of_the_models_own_input_is_a_site() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")]
    source = model(nodes, {"w": weights(1, WIDTH, 4)}, {"x": ["N", WIDTH]})
    rows = np.random.default_rng(1).normal(size=(32, WIDTH)).astype(np.float32)
    rows[:, OUTLIERS] *= 30
    prepared = onnxq.prepare(source, ALL_INTEGERS)
    made = Smooth().improve(prepared, open_samples(onnxq.Samples({"x": rows}, 4), prepared.inputs))
    assert made.outcomes[0].place == "x"


def test_all_integers_smooth_only_what_needs_no_mul_behind_integers() -> None:
    sites = sites_of(onnxq.prepare(encoder(pre_norm=False), ALL_INTEGERS))
    assert {site.tensor for site in sites} == {
        "n",
        "c3",
        "r",
    }  # the sum s is there in integers alone


def test_more_sites_than_are_worth_the_time_are_left_by_default_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(smooth_module, "MOST_SITES", 1)
    prepared = onnxq.prepare(encoder())
    batches = open_samples(samples(), prepared.inputs)
    made = smooth_module.smoothed_for_outliers(prepared, batches, Objective.SPEED)
    assert made is not None
    assert made.model is prepared.model
    (outcome,) = made.outcomes
    assert not outcome.kept
    assert re.fullmatch(r"it has \d sites, more than 1: .*", outcome.why)


def test_beside_a_correction_it_keeps_what_it_keeps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of algorithms is no worse than the first of them."""
    true_judged = smooth_module._judged

    def judged(flow: Flow, name: str, choices: Sequence[SiteChoice]) -> EqualModel:
        made = true_judged(flow, name, choices)
        withdrawn = tuple(replace(o, kept=False) for o in made.outcomes)
        return replace(made, outcomes=withdrawn) if flow.corrects_biases else made

    monkeypatch.setattr(smooth_module, "_judged", judged)
    for improve in (["smooth"], ["smooth", "bias"]):
        asked = default_qconfig_mapping().set_improve(improve)
        prepared = onnxq.prepare(encoder(), asked)
        batches = open_samples(samples(), prepared.inputs)
        made = Smooth().improve(prepared, batches)
        assert made.outcomes[-1].kept, improve


@pytest.mark.parametrize(
    ("improve", "bias", "kept"),
    [
        (("smooth", "bias"), True, True),
        (("smooth",), True, False),
        (("smooth", "bias"), False, False),
    ],
    ids=["biases corrected", "biases as they are", "no bias to correct"],
)
def test_a_gain_in_sum_is_enough_where_biases_are_corrected_alone(
    improve: tuple[str, ...], bias: bool, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judgement, "is_gain", lambda _, tried: tried < 1)  # chance explains it all
    channels = np.array([40.0, *[1.0] * 11], np.float32)
    rows = np.random.default_rng(0).normal(size=(64, 12)).astype(np.float32) * channels
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m" if bias else "y"], "matmul")]
    nodes += [helper.make_node("Add", ["m", "b"], ["y"], "add")] if bias else []
    constants = {"w": weights(1, 12, 8) / channels[:, np.newaxis]}
    constants |= {"b": weights(2, 8)} if bias else {}
    qconfig = ALL_INTEGERS.set_improve(improve)
    prepared = onnxq.prepare(model(nodes, constants, {"x": ["N", 12]}), qconfig)
    samples = open_samples(onnxq.Samples({"x": rows}, batch_size=8), prepared.inputs)
    *_, whole = Smooth().improve(prepared, samples).outcomes
    assert whole.gain_db is not None
    assert whole.gain_db > 3
    assert whole.kept is kept
    assert whole.why == "16 samples cannot tell this gain from chance"


@pytest.mark.usefixtures("improved_here")
@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_by_default_it_is_tried_where_outlying_channels_cost_the_model_much(gain: float) -> None:
    made = onnxq.quantize(
        encoder(gain), onnxq.Samples(samples(), batch_size=4), check=onnxq.Check(repair=None)
    )
    assert made.verdict is not None
    assert any("'smooth'" in note for note in made.verdict.notes) is (gain > 1)


def test_smoothing_with_every_matmul_in_integers_leaves_none_in_float() -> None:
    prepared = onnxq.prepare(encoder())
    made = Smooth().improve(prepared, open_samples(onnxq.Samples(samples(), 4), prepared.inputs))
    assert made.outcomes[-1].kept
    assert not made.naming


def test_weights_that_the_file_stores_as_integers_are_said_to_get_others() -> None:
    source = encoder()
    stored = {f"w{n}": f"w{n}_real" for n in "qkv"}
    for tensor in [t for t in source.graph.initializer if t.name in stored]:
        weight = numpy_helper.to_array(tensor)
        scale = np.float32(np.abs(weight).max() / 127)
        source.graph.initializer.remove(tensor)
        source.graph.initializer.extend(
            [
                numpy_helper.from_array(np.rint(weight / scale).astype(np.int8), tensor.name),
                numpy_helper.from_array(np.asarray(scale), f"{tensor.name}_scale"),
            ]
        )
    for node in source.graph.node:
        node.input[:] = [stored.get(name, name) for name in node.input]
    for name, real in stored.items():
        inputs = [name, f"{name}_scale"]
        source.graph.node.insert(0, helper.make_node("DequantizeLinear", inputs, [real], real))
    qconfig = ALL_INTEGERS.set_improve(("smooth",))
    made = onnxq.quantize(source, samples(), qconfig=qconfig, target="portable")
    assert made.verdict is not None
    assert any(
        "3 of the weights that the file stores as integers get other integers by smoothing" in note
        for note in made.verdict.notes
    ), made.verdict.notes

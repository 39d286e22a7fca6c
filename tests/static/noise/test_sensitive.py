from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxq
from onnxq.observers import FloatHistogramObserver, HistogramObserver
from onnxq.observers.tensor_noise import TensorNoise, decibels, predicted_noise
from onnxq.operator import Curve, Linear, Summed
from onnxq.static.noise.error import Error, Signs, added, raised, scaled, times
from onnxq.static.noise.error_paths import (
    MOST_FACTORS,
    MOST_SHARES,
    Magnifier,
    _factors,
    _origins,
)
from onnxq.static.noise.probed import responses
from onnxq.static.noise.sensitive import TYPICAL_DB, Budget, TensorLoss, sensitive, tensor_losses
from onnxq.static.planning.activation_qparams import tensor_qparams
from tests.examples import ALL_INTEGERS
from tests.static.noise.nets import (
    clipped_filter_bank,
    energies,
    feed_forwards,
    filter_bank,
    filter_bank_on_the_left,
    frequencies,
    levelled,
    norms,
    sounds,
    spectral,
    tokens,
)

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles
    from onnxq.qparams import QParams
    from onnxq.static.noise.sensitive import SensitiveTensor
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics

Samples = list[dict[str, "Singles"]]


def observed(model: onnx.ModelProto, samples: Samples) -> tuple[Prepared, Statistics]:
    prepared = onnxq.prepare(model, ALL_INTEGERS, "x86-vnni")
    return prepared, onnxq.calibrate(prepared, samples)


def found(model: onnx.ModelProto, samples: Samples) -> dict[str, SensitiveTensor]:
    return sensitive(*observed(model, samples))


def test_outlier_channels_ahead_of_a_normalization_are_unfit_with_figures() -> None:
    reasons = found(feed_forwards(3, 100.0), tokens(8))
    assert {"s0", "s1", "s2"} <= set(reasons)
    reason = reasons["s1"].reason.words
    assert "behind LayerNormalization 'norm_1' in 8 bits (" in reason
    assert "3 of 48 channels range over" in reason


def test_the_same_layers_without_outliers_keep_every_tensor() -> None:
    assert found(feed_forwards(3, 1.0), tokens(8)) == {}


def test_all_that_the_logarithm_of_a_spectrum_is_made_of_is_unfit() -> None:
    reasons = found(spectral(logarithm=True), sounds(8))
    assert set(reasons) == {"x", "c", "re2", "im2", "p", "pf"}
    assert "behind Log 'log'" in reasons["x"].reason.words


def test_errors_are_followed_through_a_norm() -> None:
    reasons = found(norms(), sounds(8))
    assert set(reasons) == {"x", "c"}
    assert "behind Log 'log'" in reasons["c"].reason.words


def test_a_spectrum_ahead_of_a_filter_bank_is_unfit_alike_on_either_side_of_it() -> None:
    right, left = (found(model, sounds(8)) for model in (filter_bank(), filter_bank_on_the_left()))
    assert "behind Log 'log'" in left["magnitude"].reason.words
    assert left["magnitude"].loss.worst_db == pytest.approx(right["magnitude"].loss.worst_db)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean"])
def test_squares_whose_sums_a_logarithm_reads_are_unfit_with_what_they_are_made_of(
    op_type: str,
) -> None:
    reasons = found(energies(op_type), sounds(8))
    assert {"c", "c2"} <= set(reasons)
    assert "behind Log 'log'" in reasons["c"].reason.words


def test_a_mean_of_many_squares_of_errors_is_left_where_it_is_quiet() -> None:
    e = np.asarray(0.01)
    squared = raised(2.0)(Error(((e, 0.0),)))
    assert squared.shift == e
    summed = added(Summed(0, 100), Signs.ONE)(squared)
    assert summed.shift == pytest.approx(100 * e)
    assert summed.constant == pytest.approx(100 * 2 * e**2 + (100 * e) ** 2)
    averaged = added(Summed(0, 100, 0.01), Signs.ONE)(squared)
    assert averaged.shift == pytest.approx(e)
    assert averaged.constant == pytest.approx(2 * e**2 / 100 + e**2)


def test_behind_a_high_root_no_factor_is_too_large() -> None:
    """Errors behind y^0.02 have powers of |y| far from 0, and so of what y is multiplied by."""

    def sqnr_db(error: Error) -> float:
        return 0.0 if np.isinf(error.terms[0][0]) else np.inf

    node = ir.Node("", "Div", [], name="div")
    behind = Magnifier("Log 'log'", "y", "log", 0, sqnr_db).through(node, (times(1e20),))
    ahead = behind.through(node, (raised(0.02),))
    assert ahead.sqnr_db(Error(((np.asarray(0.01), 0.0),))) == pytest.approx(0.0)


def test_what_is_subtracted_from_a_number_begins_where_that_is_left_of_it() -> None:
    error = Error(((np.asarray(0.01), 0.0),), floor=1.0, shift=np.asarray(0.1))
    changed = scaled(Linear((1,), 1.0, 3.0, -1.0))(error)
    assert changed.floor == 2.0
    assert changed.shift == -0.1


@pytest.mark.parametrize("operands", ["roots, delta", "delta, roots"])
def test_a_number_that_a_root_is_less_is_no_signal_on_either_side(operands: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) {{
            roots = Pow(x, half) y = Sub({operands})
        }}"""
    )
    for name, shape in (("half", ()), ("delta", (4,))):
        model.graph.initializer.append(
            numpy_helper.from_array(np.full(shape, 0.5, np.float32), name)
        )
    root = ir.from_proto(model).graph[0]
    (curve,) = responses(root)
    assert isinstance(curve, Curve)
    assert set(_origins(root, curve)) == {0.0, 0.5}


def test_quotients_of_quotients_take_no_more_time_than_the_first_two() -> None:
    runs = []

    def sqnr_db(error: Error) -> float:
        runs.append(error)
        return 20.0

    node = ir.Node("", "Div", [], name="div")
    behind = Magnifier("Log 'log'", "y", "log", 0, sqnr_db)
    for _ in range(6):
        behind = behind.through(node, tuple(map(times, np.linspace(0.5, 1.5, MOST_FACTORS))))
    assert behind.sqnr_db(Error(((np.asarray(0.01), 0.0),))) == pytest.approx(20.0)
    assert len(runs) == behind.shares == MOST_SHARES


@pytest.mark.parametrize(
    ("dividend", "sizes"), [("two", pytest.approx([0.5, 0.5], rel=0.1)), ("x", None)]
)
def test_factors_are_known_of_a_function_of_what_is_watched_and_of_nothing_else(
    dividend: str, sizes: object
) -> None:
    """A quotient of two tensors is as large as both make it, not as the divisor alone."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]> g (float[4] x, float[4] d) => (float[4] y) {{
            q = Div({dividend}, d) y = Mul(x, q)
        }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), "two"))
    seen = FloatHistogramObserver()
    seen.observe(np.full(4, 4.0, np.float32), 0)
    found = _factors(ir.from_proto(model).graph[1], 1, 1.0, {"d": seen})
    assert (found if found is None else [found[0], found[-1]]) == sizes


@pytest.mark.parametrize("divides", [True, False])
def test_bands_that_are_divided_by_their_own_loudness_are_unfit(divides: bool) -> None:
    reasons = found(levelled(divides=divides), sounds(8))
    assert {"x", "c", "re2", "im2", "p", "magnitude"} <= set(reasons)
    assert "behind Pow 'compressed'" in reasons["p"].reason.words
    assert not {"even", "raised", "features"} & set(reasons)


def test_angles_ahead_of_a_sine_stay_in_float_with_the_matmul_before_them() -> None:
    reasons = found(frequencies(100.0), tokens(8))
    assert set(reasons) == {"x", "angle"}
    assert "behind Sin 'sin' in 8 bits (" in reasons["x"].reason.words


def test_a_sine_of_small_angles_keeps_every_tensor() -> None:
    assert found(frequencies(1.0), tokens(8)) == {}


def test_a_spectrum_that_is_read_as_it_is_keeps_every_tensor() -> None:
    assert found(spectral(logarithm=False), sounds(8)) == {}


def rounded(model: onnx.ModelProto, tensor: str, qparams: QParams) -> onnx.ModelProto:
    """The model with that one tensor quantized and dequantized."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for node in made.graph.node:
        for slot, name in enumerate(node.input):
            if name == tensor:
                node.input[slot] = "rounded"
    scale = numpy_helper.from_array(np.asarray(qparams.scale), "scale")
    zero = numpy_helper.from_array(np.asarray(qparams.zero_point), "zero")
    made.graph.initializer.extend([scale, zero])
    pair = [
        helper.make_node("QuantizeLinear", [tensor, "scale", "zero"], ["integers"]),
        helper.make_node("DequantizeLinear", ["integers", "scale", "zero"], ["rounded"]),
    ]
    order = list(made.graph.node)
    at = 1 + max((i for i, node in enumerate(order) if tensor in node.output), default=-1)
    del made.graph.node[:]
    made.graph.node.extend([*order[:at], *pair, *order[at:]])
    return made


def output(model: onnx.ModelProto, samples: Samples, name: str) -> Reals:
    """Values of a tensor on all samples, by onnx's own evaluator."""
    evaluator = ReferenceEvaluator(model)
    runs = [np.asarray(evaluator.run([name], dict(batch))) for batch in samples]
    return np.concatenate(runs).astype(np.float64)


@pytest.mark.parametrize(
    ("model", "samples", "tensor", "behind", "within_db"),
    [
        (feed_forwards(3, 100.0), tokens(8), "s1", "n1", 2.0),
        (feed_forwards(3, 100.0), tokens(8), "d1", "n1", 2.5),
        (spectral(logarithm=True), sounds(8), "p", "l", 1.0),
        (spectral(logarithm=True), sounds(8), "c", "l", 1.0),
        (spectral(logarithm=True), sounds(8), "x", "l", 2.5),
        (norms(), sounds(8), "c", "l", 1.0),
        # a sum that is lost becomes the floor of the logarithm, below all that it was
        (filter_bank(), sounds(8), "sums", "l", 1.0),
        # so does one whose summands are; those of this bank are not as large as each other
        (filter_bank(), sounds(8), "magnitude", "l", 4.5),
        (filter_bank_on_the_left(), sounds(8), "magnitude", "l", 4.5),
        (clipped_filter_bank(), sounds(8), "magnitude", "l", 4.5),
        # behind a quotient, or a product with a power; of the sum that is read, 2^0.5 is no signal
        (levelled(divides=True), sounds(8), "magnitude", "features", 1.0),
        (levelled(divides=False), sounds(8), "sums", "features", 2.5),
        (levelled(divides=False), sounds(8), "even", "features", 0.5),
        (levelled(divides=False), sounds(8), "raised", "features", 0.5),
    ],
)
def test_the_figure_is_what_rounding_that_tensor_alone_does_there(
    model: onnx.ModelProto, samples: Samples, tensor: str, behind: str, within_db: float
) -> None:
    prepared, statistics = observed(model, samples)
    qparams = tensor_qparams(prepared, statistics)[0][tensor]
    right = output(model, samples, behind)
    error = output(rounded(model, tensor, qparams), samples, behind) - right
    signal = right - right.mean() if behind == "l" else right
    measured = decibels(float(np.square(signal).mean()), float(np.square(error).mean()))
    # errors that are most of a channel turn its direction, which the sum of powers does not see
    predicted = tensor_losses(prepared, statistics)[tensor].behind_db
    assert predicted == pytest.approx(measured, abs=within_db)


def budget(*worst_db: float) -> Budget:
    """Budget of roundings that keep so much in themselves."""
    noises = [TensorNoise(1.0, 10 ** (-db / 10), 0.0, 256.0) for db in worst_db]
    return Budget.of([TensorLoss("x", noise, None, None) for noise in noises])


def test_roundings_like_one_another_all_stay_however_many() -> None:
    assert budget(*[40.0] * 10).most == np.inf
    assert budget(*[40.0] * 1000).most == np.inf
    assert budget().most == np.inf


def test_an_ordinary_spread_stays() -> None:
    # the noisiest of ResNet-20 and MobileNetV2, beside the others' median
    assert budget(*[39.7] * 27, 30.6, *[34.6] * 4).most == np.inf
    assert budget(*[43.0] * 36, 33.1, 34.7).most == np.inf


def test_one_rounding_that_outweighs_all_others_goes() -> None:
    assert budget(*[40.0] * 30, 15.0).most == pytest.approx(1e-4)


def test_many_that_outweigh_the_others_together_go() -> None:
    assert budget(*[40.0] * 60, *[19.0] * 12).most == pytest.approx(1e-4)


def test_what_would_gain_less_than_a_bit_stays() -> None:
    # magika: its first convolution reads heavy tails, and is most of the time
    assert budget(24.7, 29.0, 29.0, 36.9, 143.0).most == np.inf
    # the Fourier transform of silero: 7 dB
    assert budget(26.6, 34.8, 39.3, 42.3, 43.6, 45.0, 46.0, 48.7, 56.3).most < np.inf


def test_all_that_are_bad_go_though_they_are_the_typical_ones() -> None:
    assert budget(*[8.0] * 6, *[47.0] * 5).most == pytest.approx(10**-4.7)


def test_typical_is_what_the_best_qparams_leaves_of_a_laplace_distribution() -> None:
    x = np.random.default_rng(0).laplace(size=300_000).astype(np.float32)
    observer = HistogramObserver()
    observer.observe(x, 0)
    noise = predicted_noise(observer, observer.calculate_qparams())
    assert noise is not None
    assert noise.sqnr_db == pytest.approx(TYPICAL_DB, abs=1)


def test_statistics_that_watched_nothing_say_what_a_tensor_is_in_itself() -> None:
    prepared, statistics = observed(spectral(logarithm=True), sounds(4))
    assert sensitive(prepared, dataclasses.replace(statistics, probed={})) == {}

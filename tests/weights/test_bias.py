"""Bias correction: means as in the float model, at no cost, and nothing where nothing helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.errors import CalibrationError, QConfigError
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.samples import open_samples
from onnxq.static.plan import Plan
from onnxq.weights import Bias, Improved, improve_weights, register
from onnxq.weights.algorithm import WeightAlgorithm, registry
from tests.examples import ALL_INTEGERS, images, model, network, save, weights

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    import onnx

    from onnxq.samples import Batches
    from onnxq.static.prepared import Prepared

SAMPLES = {"x": images(64)}
FOUR_BITS = ALL_INTEGERS.with_overrides(
    ["global={weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7}}"]
)
"""Rounding errors of weights large enough for their means to matter."""


def linear_layers(*, dynamic: bool = True) -> onnx.ModelProto:
    """MatMul, Add, Relu, MatMul, Gemm: a bias behind a MatMul, none, and one inside."""
    node = helper.make_node
    constants = {
        "w1": weights(1, 12, 8),
        "b1": weights(2, 8),
        "w2": weights(3, 8, 8),
        "w3": weights(4, 8, 5),
        "b3": weights(5, 5),
    }
    nodes = [
        node("MatMul", ["x", "w1"], ["p"], "matmul"),
        node("Add", ["p", "b1"], ["s"], "sum"),
        node("Relu", ["s"], ["r"], "relu"),
        node("MatMul", ["r", "w2"], ["m"], "bare"),
        node("Gemm", ["m", "w3", "b3"], ["y"], "gemm"),
    ]
    return model(nodes, constants, {"x": ["N" if dynamic else 4, 12]})


def rows(count: int, seed: int = 0) -> dict[str, npt.NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return {"x": generator.normal(0.5, 1.0, (count, 12)).astype(np.float32)}


def planned(
    source: onnx.ModelProto, samples: object, qconfig: QConfigMapping
) -> tuple[Prepared, Plan]:
    prepared = onnxq.prepare(source, qconfig)
    return prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, samples))


def opened(prepared: Prepared, samples: object) -> Batches:
    return open_samples(samples, prepared.inputs)


def test_means_of_results_become_those_of_the_float_model() -> None:
    source, samples = linear_layers(), rows(256)
    prepared, plan = planned(source, samples, FOUR_BITS)
    better = Bias().improve(prepared, plan, opened(prepared, samples))
    held = np.arange(256) % 4 == 3

    def mean_error(of: Prepared, by: Plan) -> float:
        with runtime.open_session(onnxq.rewrite(of, by), threads=1) as session:
            y = session.run({"x": samples["x"]})[0].astype(np.float64)
        with runtime.open_session(prepared.model, threads=1) as session:
            wanted = session.run({"x": samples["x"]})[0].astype(np.float64)
        return float(np.abs((y - wanted)[~held].mean(axis=0)).max())

    # what is left over is what the rounding of the last layer's own bias and result moves
    assert mean_error(better.prepared, better.plan) < mean_error(prepared, plan) / 4


def test_every_layer_has_an_outcome_and_one_without_a_bias_says_so() -> None:
    prepared, plan = planned(linear_layers(), rows(64), FOUR_BITS)
    better = Bias().improve(prepared, plan, opened(prepared, rows(64)))
    outcomes = {outcome.place: outcome for outcome in better.outcomes}
    assert set(outcomes) == {"matmul", "bare", "gemm", ""}
    assert "no bias" in outcomes["bare"].why
    assert not outcomes["bare"].kept
    assert outcomes["gemm"].kept
    assert outcomes[""].gain_db is not None


def test_a_convolution_without_a_bias_gets_one() -> None:
    made = onnxq.quantize(network(), SAMPLES, qconfig=FOUR_BITS.set_improve(["bias"]))
    (conv,) = [n for n in made.graph if n.name == "conv2"]
    assert len(conv.inputs) == 3
    assert made.verdict is not None
    assert any("PTQ algorithm 'bias'" in note for note in made.verdict.notes)


def test_the_quantized_file_is_verified_against_the_float_model_as_it_was_given(
    tmp_path: Path,
) -> None:
    source = save(network(), tmp_path / "float.onnx")
    asked = ALL_INTEGERS.set_op_type("Softmax", None)  # floats of machines differ in the last bit
    made = onnxq.quantize(source, SAMPLES, qconfig=asked.set_improve(["bias"]))
    made.save(tmp_path / "int8.onnx")
    onnxq.verify(source, tmp_path / "int8.onnx", SAMPLES)
    assert onnxq.cross_check(tmp_path / "int8.onnx", SAMPLES).differing == 0


def test_a_saved_qconfig_gives_the_same_bytes(tmp_path: Path) -> None:
    asked = FOUR_BITS.set_improve(("bias",))
    prepared, plan = planned(network(), SAMPLES, asked)
    better = improve_weights(prepared, plan, opened(prepared, SAMPLES))
    path = tmp_path / "qconfig.yaml"
    path.write_text(better.plan.qconfig.to_yaml())
    asked_again = QConfigMapping.from_yaml(path)
    again = onnxq.quantize(network(), SAMPLES, qconfig=asked_again, check=SAMPLES)
    assert onnxq.rewrite(better.prepared, better.plan).to_bytes() == again.to_bytes()
    better.plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == better.plan


def test_a_plan_of_improved_weights_is_not_written_on_others() -> None:
    prepared, plan = planned(network(), SAMPLES, FOUR_BITS)
    better = Bias().improve(prepared, plan, opened(prepared, SAMPLES))
    with pytest.raises(CalibrationError, match="improved weights"):
        onnxq.rewrite(prepared, better.plan)


def test_too_few_samples_are_told() -> None:
    prepared, plan = planned(linear_layers(dynamic=False), rows(8), FOUR_BITS)
    better = Bias().improve(prepared, plan, opened(prepared, rows(8)))
    (outcome,) = better.outcomes
    assert "2 batches of samples" in outcome.why
    few = planned(linear_layers(), rows(8), FOUR_BITS)
    whole = Bias().improve(*few, opened(few[0], [rows(8)])).outcomes[-1]
    assert "8 samples, which is few" in whole.why


def test_improvements_want_samples_and_known_names() -> None:
    prepared = onnxq.prepare(network(), ALL_INTEGERS.set_improve(("bias",)))
    prepared.run(SAMPLES)
    with pytest.raises(CalibrationError, match="need the samples"):
        onnxq.convert(prepared)
    with pytest.raises(CalibrationError, match="need the samples"):
        onnxq.quantize(
            network(), prepared.statistics, qconfig=default_qconfig_mapping().set_improve(["bias"])
        )
    with pytest.raises(QConfigError, match="Did you mean 'bias'"):
        onnxq.quantize(network(), SAMPLES, qconfig=default_qconfig_mapping().set_improve(["biass"]))
    with pytest.raises(QConfigError, match="each name stands there once"):
        QConfigMapping.from_yaml("improve: [bias, bias]")
    with pytest.raises(QConfigError, match="a list of names"):
        QConfigMapping.from_yaml("improve: bias")


def test_an_improvement_of_ones_own_is_found_by_its_name() -> None:
    @register
    class Nothing(WeightAlgorithm):
        """Leaves everything as it is."""

        name = "nothing"

        def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
            assert len(list(samples)) == 64
            return Improved(prepared, plan)

    try:
        plain = onnxq.quantize(network(), SAMPLES, qconfig=default_qconfig_mapping())
        asked = default_qconfig_mapping().set_improve(["nothing"])
        same = onnxq.quantize(network(), SAMPLES, qconfig=asked, check=SAMPLES)
        assert ir.to_proto(same) == ir.to_proto(plain)
        with pytest.raises(ValueError, match="registered twice"):
            register(Nothing)
    finally:
        del registry["nothing"]

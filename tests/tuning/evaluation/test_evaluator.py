from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.errors import QConfigError
from onnxq.observers import MinMaxObserver, PercentileObserver
from onnxq.operator import Precision
from onnxq.qconfig import (
    Choice,
    Pixels,
    QConfig,
    QConfigDynamic,
    default_qconfig_mapping,
    onnxq_default_qconfig,
)
from onnxq.samples.excerpt import held_apart
from onnxq.tuning.scoring.metric import SQNR
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.search.candidate import QuantizedAlone
from onnxq.tuning.search.quantization_groups import Layers, quantization_groups_of
from tests.examples import ALL_INTEGERS, images, network
from tests.small_networks import encoder_block, perceptron
from tests.tuning.parts import evaluator_of, labelled, rows

if TYPE_CHECKING:
    import onnx

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluation.evaluator import Evaluator

DEFAULT = default_qconfig_mapping()
PERCENTILES = QConfig(PercentileObserver.with_args(percentile=99.0), onnxq_default_qconfig.weight)
EXTREMES = QConfig(MinMaxObserver.with_args(), onnxq_default_qconfig.weight)
MAPPINGS = {
    "default": DEFAULT,
    "all integers": ALL_INTEGERS,
    "a node in float": ALL_INTEGERS.set_node("conv2", None),
    "float alone": DEFAULT.set_global(None),
    "dynamic": ALL_INTEGERS.set_node("gemm", QConfigDynamic(onnxq_default_qconfig.weight)),
    "percentiles": ALL_INTEGERS.set_node("conv1", PERCENTILES),
    "other percentiles": ALL_INTEGERS.set_node("conv2", PERCENTILES),
    "extremes": ALL_INTEGERS.set_global(EXTREMES),
    "better biases": ALL_INTEGERS.set_improve(("bias",)),
    "a pool": ALL_INTEGERS.set_op_type("GlobalAveragePool", None),
}


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return evaluator_of()


def quantized(model: onnx.ModelProto, samples: object, mapping: QConfigMapping) -> bytes:
    """Bytes of the file that `quantize` makes of the samples that are searched on."""
    inputs = Subject.of(model).inputs
    search, _ = held_apart(onnxq.samples.open_samples(samples, inputs))
    return onnxq.quantize(model, search, qconfig=mapping, check=samples).to_bytes()


@pytest.mark.filterwarnings("ignore:nothing is quantized")  # where all is left in float
@pytest.mark.parametrize("name", MAPPINGS)
def test_a_candidate_is_what_quantize_makes_byte_for_byte(evaluator: Evaluator, name: str) -> None:
    mapping = MAPPINGS[name]
    made = evaluator.quantized(mapping)
    assert made.model.to_bytes() == quantized(network(), {"x": images(12)}, mapping)


@pytest.mark.parametrize("name", MAPPINGS)
def test_the_mapping_of_its_plan_makes_it_again(evaluator: Evaluator, name: str) -> None:
    made = evaluator.quantized(MAPPINGS[name])
    again = evaluator.quantized(made.plan.qconfig)
    assert again.model.to_bytes() == made.model.to_bytes()


def test_a_tensor_that_another_candidate_watches_as_well_is_calibrated_again() -> None:
    evaluator = evaluator_of()
    evaluator.quantized(MAPPINGS["a node in float"])
    made = evaluator.quantized(MAPPINGS["percentiles"])
    alone = evaluator_of().quantized(MAPPINGS["percentiles"])
    assert made.model.to_bytes() == alone.model.to_bytes()


def test_candidates_with_the_same_observers_share_a_calibration() -> None:
    evaluator = evaluator_of()
    entry = onnxq_default_qconfig
    for mapping in (
        DEFAULT,
        ALL_INTEGERS,
        ALL_INTEGERS.set_node("conv2", replace(entry, precision=Precision.FLOAT)),
        ALL_INTEGERS.set_node("gemm", replace(entry, precision=Precision.INT8_FLOAT_OUTPUT)),
    ):
        evaluator(mapping)
    assert evaluator.observations.calibrations == 1
    evaluator(MAPPINGS["extremes"])
    evaluator(MAPPINGS["extremes"].set_node("conv2", replace(EXTREMES, precision=Precision.FLOAT)))
    assert evaluator.observations.calibrations == 2


def test_a_score_is_what_verify_finds(evaluator: Evaluator) -> None:
    score = evaluator(ALL_INTEGERS)
    made = evaluator.quantized(ALL_INTEGERS).model
    source = evaluator.subject.canonical.model
    (output,) = onnxq.verify(
        source, made, evaluator.samples.taken_by(evaluator.subject.inputs)
    ).outputs
    assert score.sqnr_db == {"y": pytest.approx(output.sqnr_db, abs=1e-3)}
    assert score.metric == score.worst_db
    assert score.size_bytes == len(made.to_bytes())
    assert score.time_ratio is None


def test_all_of_it_in_float_differs_in_nothing(evaluator: Evaluator) -> None:
    assert evaluator(DEFAULT.set_global(None)).worst_db == np.inf


def test_a_metric_of_the_user_sees_labels_and_outputs() -> None:
    def accuracy(run: object, samples: object) -> object:
        return np.mean([run(b)["y"].argmax(1) == b["labels"] for b in samples])  # type: ignore[operator, attr-defined]  # as users write it

    evaluator = evaluator_of(metric=accuracy)
    source = evaluator.subject.canonical.model
    assert evaluator(DEFAULT.set_global(None)).metric == evaluator.baseline.metric
    assert source is evaluator.subject.canonical.model


def test_times_come_from_the_forms_of_the_plan() -> None:
    asked: list[dict[str, Precision]] = []

    def ratio(precisions: dict[str, Precision]) -> float:
        asked.append(dict(precisions))
        return 0.5

    evaluator = evaluator_of()
    evaluator.ratio = ratio  # type: ignore[assignment]  # of a dict, to look at
    assert evaluator(ALL_INTEGERS.set_node("conv2", None)).time_ratio == 0.5
    assert asked[0]["conv1"] is Precision.INT8
    assert asked[0]["conv2"] is Precision.FLOAT


def test_a_mapping_of_another_model_is_refused(evaluator: Evaluator) -> None:
    with pytest.raises(QConfigError, match="conv9"):
        evaluator(DEFAULT.set_node("conv9", None))


def test_nodes_with_which_it_does_not_run_go_to_float_as_in_quantize(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = evaluator.quantized(DEFAULT)
    seen: list[object] = []

    def refusing(mapping: object, check: object) -> object:
        del mapping
        seen.append(check)
        return made

    broken = evaluator_of()
    monkeypatch.setattr(broken, "_made", refusing)
    score = broken._score
    monkeypatch.setattr(
        broken,
        "_score",
        lambda each: score(each) if len(seen) > 1 else (_ for _ in ()).throw(_refused()),
    )
    assert broken(DEFAULT) == evaluator(DEFAULT)
    assert len(seen) == 2


def _refused() -> Exception:
    from onnxq.errors import ModelError

    return ModelError("ONNX Runtime does not run it")


@pytest.mark.parametrize("make", [encoder_block, perceptron])
def test_other_networks_are_made_byte_for_byte_too(make: object) -> None:
    model: onnx.ModelProto = make()  # type: ignore[operator]  # a function
    (spec,) = Subject.of(model).inputs
    shape = [n if isinstance(n, int) else 1 for n in spec.shape or ()]
    x = np.random.default_rng(0).standard_normal((8, *shape[1:])).astype(np.float32)
    evaluator = evaluator_of(model, {spec.name: x})
    for mapping in (DEFAULT, ALL_INTEGERS):
        made = evaluator.quantized(mapping)
        assert made.model.to_bytes() == quantized(model, {spec.name: x}, mapping)


def test_settings_reach_every_candidate() -> None:
    wishes = Wishes(target="x86-vnni", file_format="qoperator", quantized_output=("y",))
    evaluator = evaluator_of(wishes=wishes)
    made = evaluator.quantized(ALL_INTEGERS).model
    assert made.metadata_props["onnxq.target"] == "x86-vnni"
    assert any(node.op_type == "QLinearConv" for node in made.graph)
    assert (
        10 < evaluator(ALL_INTEGERS).worst_db < 60
    )  # integers are compared as what they stand for


def test_a_subject_pickles_and_makes_the_same_bytes(evaluator: Evaluator) -> None:
    again = pickle.loads(pickle.dumps(evaluator.subject))
    copy = evaluator_of()
    copy.subject = again
    assert copy.metric is SQNR
    made = copy.quantized(ALL_INTEGERS).model.to_bytes()
    assert made == evaluator.quantized(ALL_INTEGERS).model.to_bytes()
    assert again.model_hash == evaluator.subject.model_hash


def test_labels_do_not_reach_the_model() -> None:
    assert set(labelled()) == {"x", "labels"}
    evaluator = evaluator_of()
    taken = evaluator.samples.taken_by(evaluator.subject.calibrated_inputs())
    assert all(set(batch) == {"x"} for batch in taken)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_model_that_takes_pixels_is_scored_on_pixels_and_on_numbers(dtype: type) -> None:
    pixels = Pixels((128.0,) * 3, (16.0,) * 3, 1.0)
    integers = np.clip(np.round(images(12) * 16 + 128), 0, 255).astype(np.uint8)
    x = (
        integers
        if dtype is np.uint8
        else ((integers.astype(np.float32) - 128) / 16).astype(np.float32)
    )
    evaluator = evaluator_of(samples={"x": x}, wishes=Wishes(quantized_input={"x": pixels}))
    (taken,) = evaluator.quantized(ALL_INTEGERS).model.graph.inputs
    assert taken.dtype is not None
    assert taken.dtype.numpy() == np.uint8
    assert evaluator(ALL_INTEGERS).worst_db > 40


def test_estimates_share_the_calibration_of_what_covers_them() -> None:
    evaluator = evaluator_of(encoder_block(), rows(encoder_block()))
    asked = evaluator.subject.default
    prepared = evaluator.subject.prepared(
        asked.without_precisions().set_choice(Choice.ALL_INTEGERS)
    )
    groups_of_nodes = quantization_groups_of(prepared.model, prepared.decisions, asked)
    alone = QuantizedAlone(asked, groups_of_nodes)
    groups = [Layers((group,)) for group in groups_of_nodes]
    exact = {group.name: evaluator.quantized(alone.alone(group)).plan for group in groups}
    apart = evaluator.observations.calibrations
    estimating = evaluator_of(encoder_block(), rows(encoder_block())).covering(alone.together)
    for group in groups:
        plan = estimating.quantized(alone.alone(group)).plan
        assert plan.tensors.keys() == exact[group.name].tensors.keys()
        for tensor, wanted in exact[group.name].tensors.items():
            found = plan.tensors[tensor]
            np.testing.assert_allclose(found.scale, wanted.scale, rtol=0.02)
    assert estimating.observations.calibrations == 1 < apart

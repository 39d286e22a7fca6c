"""From all integers, a search finds by itself what was worked out by hand (docs/guides/tune.md).

Times are those of the table, so that the claims hold on any machine.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch

import onnxq
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Precision
from onnxq.operator.nodes import input_at
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.times import costs_of
from onnxq.tuning.evaluation.evaluator import Evaluator, baseline_of, precisions_of
from onnxq.tuning.scoring.metric import as_metric
from onnxq.tuning.scoring.objective_function import MARGIN_DB
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.scoring.tuning_samples import open_tuning_samples
from onnxq.tuning.tuned import MissedGoalWarning
from scripts._architectures import SETTLING, Size
from scripts._architectures._parts import Feeds, initialize, settle
from scripts._defaults.audio import SIZES, Classifier, sounds
from scripts._defaults.case import exported
from scripts._defaults.images import transformer
from scripts._defaults.mobile import architecture
from tests.this_machine import adds_exactly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.tuning.tuned import Tuned
    from scripts._defaults.case import Case

# minutes: searches of whole networks, whose accuracy is that of full-range weights
pytestmark = [pytest.mark.nightly, adds_exactly]

TARGET = "x86-vnni"
IN_INTEGERS = {Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.DYNAMIC_INT8}
MOVED = ("Reshape", "Transpose")
"""Operators that compute nothing, on integers or on floats."""
ALL_INTEGERS = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)


def searched(case: Case) -> tuple[Tuned, Subject, dict[str, Precision | None]]:
    """(search, its subject, precisions of nodes) for the accuracy that the default has, from there.

    Half a decibel less than the default's is asked for, beside the margin that a search keeps:
    another precision is as good by a hair.
    """
    subject = Subject.of(case.model, Wishes(TARGET))
    search, _ = open_tuning_samples(
        onnxq.Samples(case.calibration), onnxq.Check(case.test), subject.inputs
    )
    metric = as_metric(None)
    evaluator = Evaluator(subject, search, baseline_of(subject, search, metric), metric)
    least = evaluator(subject.default).worst_db - MARGIN_DB - 0.5
    goal = onnxq.Goal(min_sqnr_db=least, improve=())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissedGoalWarning)  # on samples held apart, by a hair
        found = onnxq.tune(
            case.model,
            case.calibration,
            check=case.test,
            qconfig=ALL_INTEGERS,
            goal=goal,
            target=TARGET,
            costs=costs_of(TARGET),
        )
    assert found.score.worst_db >= (goal.min_sqnr_db or 0.0)
    return found, subject, precisions_of(evaluator.quantized(found.qconfig).plan)


def forms_by(
    subject: Subject, precisions: dict[str, Precision | None], name: Callable[[ir.Node], str]
) -> dict[str, set[Precision | None]]:
    """Name that a node is called by -> precisions of the nodes of that name."""
    found = defaultdict(set)
    for node, _ in walk(subject.prepared(subject.default).model.graph):
        found[name(node)].add(precisions.get(node_name(node), Precision.FLOAT))
    return found


def factors(node: ir.Node) -> str:
    """The operator of a node; MatMuls are of weights or of activations."""
    if node.op_type not in ("MatMul", "Gemm"):
        return node.op_type
    return "of activations" if input_at(node, 1).const_value is None else "of weights"


def dimensions(node: ir.Node) -> str:
    """The operator of a node; convolutions are of waves or of images."""
    if node.op_type != "Conv":
        return node.op_type
    weight = input_at(node, 1).const_value
    assert weight is not None
    return f"Conv of {len(weight.shape) - 2}"


def behind_a_transform(folder: Path) -> Case:
    """The classifier of sounds of scripts/_defaults/audio, its layers with random weights."""
    samples, bands, longest, hop, *_ = SIZES[Size.REAL]

    def feeds(count: int, seed: int) -> Feeds:
        return {"wave": torch.from_numpy(sounds(count, samples, seed)[0])}

    module = Classifier(bands, longest, hop)
    initialize(module.listener)
    settle(module, feeds(*SETTLING))
    return exported((module, feeds), folder / "float.onnx")


def assert_faster(found: Tuned) -> None:
    """The search found something faster than where it began."""
    begun, reached = found.steps[0].score, found.score
    assert reached.time_ratio is not None
    assert begun.time_ratio is not None
    assert reached.time_ratio < begun.time_ratio


def test_of_a_transformer_matmuls_of_weights_alone_compute_in_integers(tmp_path: Path) -> None:
    found, subject, precisions = searched(transformer(Size.REAL, tmp_path))
    by = forms_by(subject, precisions, factors)
    computing = {name: each for name, each in by.items() if name not in MOVED}
    assert {name for name, each in computing.items() if each & IN_INTEGERS} == {"of weights"}
    matmuls = forms_by(subject, precisions, lambda node: f"{factors(node)} {node_name(node)}")
    of_weights = [each for name, each in matmuls.items() if name.startswith("of weights")]
    assert sum(each <= IN_INTEGERS for each in of_weights) >= 0.9 * len(of_weights)
    assert_faster(found)


def test_the_transform_of_sounds_stays_in_float_and_layers_behind_do_not(tmp_path: Path) -> None:
    found, subject, precisions = searched(behind_a_transform(tmp_path))
    by = forms_by(subject, precisions, dimensions)
    assert by["Conv of 1"] == by["Pow"] == by["Log"] == {Precision.FLOAT}
    assert Precision.INT8 in by["Conv of 2"]
    assert found.score.worst_db > found.steps[0].score.worst_db + 20
    assert found.score.time_ratio is not None
    assert found.score.time_ratio < 0.9


def test_recurrent_layers_compute_in_integers_made_at_run_time(tmp_path: Path) -> None:
    make = partial(architecture, "crnn")
    found, subject, precisions = searched(make(Size.REAL, tmp_path))
    assert forms_by(subject, precisions, lambda node: node.op_type)["LSTM"] == {
        Precision.DYNAMIC_INT8
    }
    assert_faster(found)


def test_shuffles_of_channels_changes_integers_and_the_first_convolution_stays_in_float(
    tmp_path: Path,
) -> None:
    found, subject, precisions = searched(architecture("shufflenet", Size.REAL, tmp_path))
    by = forms_by(subject, precisions, lambda node: node.op_type)
    assert by["Gather"] == {Precision.INT8}  # a Reshape, a Transpose and a Reshape before
    assert "Transpose" not in by
    assert by["MaxPool"] == {Precision.FLOAT}  # behind that convolution
    assert_faster(found)

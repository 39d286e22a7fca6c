"""From all integers, a search finds by itself what was worked out by hand (docs/tune.md).

Times are those of the table, so that the claims hold on any machine.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq import costs
from onnxq.graph.walk import node_name, walk
from onnxq.operator import NodeForm
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.tuning.baseline import baseline_of
from onnxq.tuning.evaluator import Evaluator
from onnxq.tuning.metric import as_metric
from onnxq.tuning.subject import Settings, Subject
from onnxq.tuning.time_model import forms_of
from onnxq.tuning.tuned import MissedGoalWarning
from onnxq.tuning.tuning_samples import open_tuning_samples
from scripts._architectures import Size
from scripts._defaults.mobile import architecture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.tuning.tuned import Tuned
    from scripts._defaults.case import Case

pytestmark = pytest.mark.nightly  # minutes: searches of whole networks

TARGET = "x86-vnni"
ALL_INTEGERS = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)


def searched(case: Case) -> tuple[Tuned, Subject, dict[str, NodeForm | None]]:
    """(search, its subject, forms of the nodes) for the accuracy that the default has, from there.

    Half a decibel less than the default's is asked for: another form is as good by a hair.
    """
    subject = Subject.of(case.model, Settings(TARGET))
    search, _ = open_tuning_samples(case.calibration, case.test, subject.inputs)
    metric = as_metric(None)
    evaluator = Evaluator(subject, search, baseline_of(subject, search, metric), metric)
    goal = onnxq.Goal(min_sqnr_db=evaluator(subject.default).worst_db - 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissedGoalWarning)  # on samples held apart, by a hair
        found = onnxq.tune(
            case.model,
            case.calibration,
            check=case.test,
            qconfig=ALL_INTEGERS,
            goal=goal,
            target=TARGET,
            costs=costs.of(TARGET),
            improve=(),
        )
    assert found.score.worst_db >= (goal.min_sqnr_db or 0.0)
    return found, subject, forms_of(evaluator.quantized(found.qconfig).plan)


def forms_by(
    subject: Subject, forms: dict[str, NodeForm | None], name: Callable[[ir.Node], str]
) -> dict[str, set[NodeForm | None]]:
    """Name that a node is called by -> forms of the nodes of that name."""
    found = defaultdict(set)
    for node, _ in walk(subject.prepared(subject.default).model.graph):
        found[name(node)].add(forms.get(node_name(node), NodeForm.FLOAT))
    return found


def test_recurrent_layers_compute_in_integers_made_at_run_time(tmp_path: Path) -> None:
    make = partial(architecture, "crnn")
    found, subject, forms = searched(make(Size.REAL, tmp_path))
    assert forms_by(subject, forms, lambda node: node.op_type)["LSTM"] == {NodeForm.DYNAMIC}
    begun, reached = found.steps[0].score, found.score
    assert reached.time_ratio is not None
    assert begun.time_ratio is not None
    assert reached.time_ratio < begun.time_ratio

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.observers import MinMaxObserver, PercentileObserver
from onnxq.operator import NodeForm
from onnxq.qconfig import Choice, QConfig
from onnxq.tuning.evaluation.evaluations import Evaluations
from onnxq.tuning.evaluation.journal import Journal, JournalHead
from onnxq.tuning.search.candidate import Candidate, PrecisionChange
from onnxq.tuning.search.config_changes import ActivationObserver, QuantizedAlone, with_form
from onnxq.tuning.search.layers import Layers
from onnxq.tuning.search.part_changes import Changed, PartChanges
from onnxq.tuning.search.quantization_groups import quantization_groups_of
from tests.tuning.parts import chain, evaluator_of

if TYPE_CHECKING:
    from onnxq.tuning.evaluation.evaluator import Evaluator

HEAD = JournalHead("model", "samples", "sqnr", "portable", "1", "fast")
# cuts off the largest tenth of what it sees: as bad an observer as there is
LOSSY = ActivationObserver(PercentileObserver.with_args(percentile=90.0))
WHOLE = ActivationObserver(MinMaxObserver.with_args())


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    x = np.random.default_rng(0).standard_normal((80, 16)).astype(np.float32)
    return evaluator_of(chain(), {"x": x})


def begun(evaluator: Evaluator) -> QuantizedAlone:
    """A start with a bad observer everywhere."""
    asked = LOSSY.applied(evaluator.subject.default.set_choice(Choice.ALL_INTEGERS))
    prepared = evaluator.subject.prepared(asked)
    return QuantizedAlone(asked, quantization_groups_of(prepared.model, prepared.decisions, asked))


def offering(evaluator: Evaluator, lowest_precision: QuantizedAlone) -> PartChanges:
    groups = [Layers((group,)) for group in lowest_precision.groups]
    evaluations = Evaluations(evaluator, Journal.open(None, HEAD))
    return PartChanges(evaluations, groups, [WHOLE, LOSSY], lowest_precision.alone, None)


def test_a_group_is_offered_the_observer_that_takes_noise_away(evaluator: Evaluator) -> None:
    lowest_precision = begun(evaluator)
    found = offering(evaluator, lowest_precision).offers(
        Candidate(lowest_precision.together, lowest_precision.groups)
    )
    assert found
    assert {offer.change for offer in found} == {WHOLE}
    mapping = found[0].applied(lowest_precision.together)
    changed = [
        name
        for name, entry in mapping.nodes.items()
        if isinstance(entry, QConfig) and entry.activation_observer == WHOLE.spec
    ]
    assert set(changed) == {m.name for group in found[0].groups for m in group.members}


def test_what_is_in_float_is_offered_nothing(evaluator: Evaluator) -> None:
    lowest_precision = begun(evaluator)
    start = Candidate(lowest_precision.together, lowest_precision.groups)
    floats = start.with_changes(
        PrecisionChange(group, NodeForm.FLOAT) for group in lowest_precision.groups
    )
    assert offering(evaluator, lowest_precision).offers(floats) == []


def test_offers_take_the_runs_that_they_say(evaluator: Evaluator) -> None:
    lowest_precision = begun(evaluator)
    few = 4 / evaluator.samples.rows  # samples of each group, as they are and with two changes
    assert offering(evaluator, lowest_precision).runs == pytest.approx(
        3 * few * len(lowest_precision.groups)
    )


def test_a_group_with_a_changes_has_a_name_of_its_own(evaluator: Evaluator) -> None:
    alike = Layers(begun(evaluator).groups[:1])
    assert Changed(alike, None).node_group == alike.node_group
    assert Changed(alike, WHOLE).node_group.name == f"{alike.name}, {WHOLE.name}"


def test_a_group_that_is_dynamic_keeps_its_entry(evaluator: Evaluator) -> None:
    lowest_precision = begun(evaluator)
    group = lowest_precision.groups[0]
    mapping = with_form(lowest_precision.together, group, NodeForm.STORED)
    assert (
        WHOLE.changed(mapping.nodes[group.anchor.name], mapping.global_qconfig)
        == (mapping.nodes[group.anchor.name])
    )

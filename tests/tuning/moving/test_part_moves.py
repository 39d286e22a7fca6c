from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.observers import MinMaxObserver, PercentileObserver
from onnxq.operator import Precision
from onnxq.qconfig import Choice, QConfig
from onnxq.tuning.evaluating.evaluations import Evaluations
from onnxq.tuning.evaluating.journal import Journal, JournalHead
from onnxq.tuning.moving.coded import CodedMappings
from onnxq.tuning.moving.kinds import Alike
from onnxq.tuning.moving.moves import ActivationObserver, with_form
from onnxq.tuning.moving.part_moves import Changed, PartMoves
from onnxq.tuning.moving.position import FormMove, Position
from onnxq.tuning.moving.units import units_of
from tests.tuning.parts import chain, evaluator_of

if TYPE_CHECKING:
    from onnxq.tuning.evaluating.evaluator import Evaluator

HEAD = JournalHead("model", "samples", "sqnr", "portable", "1", "fast")
# cuts off the largest tenth of what it sees: as bad an observer as there is
LOSSY = ActivationObserver(PercentileObserver.with_args(percentile=90.0))
WHOLE = ActivationObserver(MinMaxObserver.with_args())


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    x = np.random.default_rng(0).standard_normal((80, 16)).astype(np.float32)
    return evaluator_of(chain(), {"x": x})


def begun(evaluator: Evaluator) -> CodedMappings:
    """A start with a bad observer everywhere."""
    asked = LOSSY.applied(evaluator.subject.default.set_choice(Choice.ALL_INTEGERS))
    prepared = evaluator.subject.prepared(asked)
    return CodedMappings(asked, units_of(prepared.model, prepared.decisions, asked))


def offering(evaluator: Evaluator, coded: CodedMappings) -> PartMoves:
    groups = [Alike((unit,)) for unit in coded.units]
    evaluations = Evaluations(evaluator, Journal.open(None, HEAD))
    return PartMoves(evaluations, groups, [WHOLE, LOSSY], coded.alone, None)


def test_a_group_is_offered_the_observer_that_takes_noise_away(evaluator: Evaluator) -> None:
    coded = begun(evaluator)
    found = offering(evaluator, coded).offers(Position(coded.together, coded.units))
    assert found
    assert {offer.move for offer in found} == {WHOLE}
    mapping = found[0].applied(coded.together)
    changed = [
        name
        for name, entry in mapping.nodes.items()
        if isinstance(entry, QConfig) and entry.activation_observer == WHOLE.spec
    ]
    assert set(changed) == {m.name for unit in found[0].units for m in unit.members}


def test_what_is_in_float_is_offered_nothing(evaluator: Evaluator) -> None:
    coded = begun(evaluator)
    start = Position(coded.together, coded.units)
    floats = start.moved(FormMove(unit, Precision.FLOAT) for unit in coded.units)
    assert offering(evaluator, coded).offers(floats) == []


def test_offers_take_the_runs_that_they_say(evaluator: Evaluator) -> None:
    coded = begun(evaluator)
    few = 4 / evaluator.samples.rows  # samples of each group, as they are and with two moves
    assert offering(evaluator, coded).runs == pytest.approx(3 * few * len(coded.units))


def test_a_group_with_a_move_has_a_name_of_its_own(evaluator: Evaluator) -> None:
    alike = Alike(begun(evaluator).units[:1])
    assert Changed(alike, None).group == alike.group
    assert Changed(alike, WHOLE).group.name == f"{alike.name}, {WHOLE.name}"


def test_a_unit_that_is_dynamic_keeps_its_entry(evaluator: Evaluator) -> None:
    coded = begun(evaluator)
    unit = coded.units[0]
    mapping = with_form(coded.together, unit, Precision.WEIGHT_ONLY)
    assert (
        WHOLE.changed(mapping.nodes[unit.anchor.name], mapping.global_qconfig)
        == (mapping.nodes[unit.anchor.name])
    )

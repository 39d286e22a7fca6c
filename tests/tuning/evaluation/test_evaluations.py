from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import QConfigError, UnsupportedError
from onnxq.jobs import Processes
from onnxq.observers import MinMaxObserver
from onnxq.qconfig import QConfig, default_qconfig_mapping, onnxq_default_qconfig
from onnxq.tuning.evaluation.evaluations import (
    Evaluations,
    Journal,
    JournalHead,
    Refusal,
    key_of,
    scoring,
)
from onnxq.tuning.scoring.metric import MetricError
from onnxq.tuning.scoring.score import Score
from tests.examples import ALL_INTEGERS, images
from tests.tuning.parts import evaluator_of

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluation.evaluator import Evaluator

HEAD = JournalHead("model", "samples", "sqnr", "portable", "1")
MAPPINGS = [ALL_INTEGERS, ALL_INTEGERS.set_node("conv1", None), ALL_INTEGERS.set_node("gemm", None)]
NO_MODEL = ALL_INTEGERS.set_node("conv9", None)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return evaluator_of()


def test_a_mapping_is_scored_once_whatever_the_order_of_its_entries(evaluator: Evaluator) -> None:
    first = ALL_INTEGERS.set_node("conv1", None).set_node("gemm", None)
    second = ALL_INTEGERS.set_node("gemm", None).set_node("conv1", None)
    assert key_of(first) == key_of(second) != key_of(ALL_INTEGERS)
    found = Evaluations(evaluator, Journal.open(None, HEAD))
    assert found(first) == found(second) == evaluator(first)
    assert found.runs == 1


def test_scores_come_in_the_order_of_the_mappings(evaluator: Evaluator) -> None:
    found = Evaluations(evaluator, Journal.open(None, HEAD))
    assert found.all(MAPPINGS) == [evaluator(mapping) for mapping in MAPPINGS]
    assert found.runs == 3


def test_a_mapping_without_a_model_is_a_refusal_and_the_others_go_on(evaluator: Evaluator) -> None:
    found = Evaluations(evaluator, Journal.open(None, HEAD))
    first, refused, last = found.all([MAPPINGS[0], NO_MODEL, MAPPINGS[1]])
    assert isinstance(first, Score)
    assert isinstance(last, Score)
    assert isinstance(refused, Refusal)
    assert "conv9" in refused.reason
    with pytest.raises(UnsupportedError, match="conv9"):
        found(NO_MODEL)


def test_a_search_that_goes_on_looks_up_what_was_measured(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(tmp_path / "j", HEAD) as journal:
        before = Evaluations(evaluator, journal).all([*MAPPINGS, NO_MODEL])

    def fail(*_: object) -> None:
        raise AssertionError

    unused = evaluator_of()
    monkeypatch.setattr(unused, "quantized", fail)
    with Journal.open(tmp_path / "j", HEAD) as journal:
        found = Evaluations(unused, journal)
        assert found.all([*MAPPINGS, NO_MODEL]) == before
        assert found.runs == 4


def test_a_mapping_has_a_score_of_its_own_on_every_set_of_samples(evaluator: Evaluator) -> None:
    journal = Journal.open(None, HEAD)
    first, second = (evaluator_of(samples={"x": images(8, seed=seed)}) for seed in (1, 2))
    found = [Evaluations(each, journal)(ALL_INTEGERS) for each in (evaluator, first, second)]
    assert found == [each(ALL_INTEGERS) for each in (evaluator, first, second)]
    assert len(journal) == len({score.metric for score in found}) == 3


def test_a_metric_that_fails_ends_the_search() -> None:
    def failing(run: object, samples: object) -> float:
        del run, samples
        failing.calls += 1  # type: ignore[attr-defined]  # a counter
        return 1.0 if failing.calls == 1 else float("nan")  # type: ignore[attr-defined]  # likewise

    failing.calls = 0  # type: ignore[attr-defined]  # likewise
    found = Evaluations(evaluator_of(metric=failing), Journal.open(None, HEAD))
    with pytest.raises(MetricError, match="nan"):
        found(ALL_INTEGERS)


def _with_others(mapping: QConfigMapping) -> QConfigMapping:
    return mapping.set_node(
        "conv1", QConfig(MinMaxObserver.with_args(), onnxq_default_qconfig.weight)
    )


def test_an_evaluator_that_travelled_gives_the_same_scores(evaluator: Evaluator) -> None:
    work = pickle.loads(pickle.dumps(partial(scoring, evaluator)))()
    mappings = [*MAPPINGS, _with_others(ALL_INTEGERS)]
    assert [work(mapping) for mapping in mappings] == [evaluator(mapping) for mapping in mappings]


@pytest.mark.nightly
def test_any_number_of_workers_gives_the_same_scores_and_the_same_journal(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    mappings = [*MAPPINGS, _with_others(ALL_INTEGERS), NO_MODEL, default_qconfig_mapping()]
    with Journal.open(tmp_path / "one", HEAD) as journal:
        alone = Evaluations(evaluator, journal).all(mappings)
    with Journal.open(tmp_path / "two", HEAD) as journal, Processes(2) as executor:
        together = Evaluations(evaluator, journal).all(mappings, executor)
    assert alone == together
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_errors_that_are_no_mappings_fault_are_raised(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    broken = evaluator_of()
    monkeypatch.setattr(broken, "quantized", fail)
    with pytest.raises(ZeroDivisionError):
        Evaluations(broken, Journal.open(None, HEAD))(ALL_INTEGERS)
    assert issubclass(MetricError, QConfigError)
    del evaluator

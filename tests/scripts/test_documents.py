"""Every claim of PyTorch's and NVIDIA's documents holds, but for those listed with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq.errors import UnsupportedError
from onnxq.pytorch import quantization
from scripts import documents
from scripts._documents import compare, names, observing
from scripts._documents.check import DOCUMENTS, NVIDIA, Check, Difference, Kind, outcome
from scripts._documents.expected import EXPECTED
from scripts._documents.forms import compare as compare_forms
from scripts._documents.forms import parameters

PARTS = 40  # of some 25 checks, a third of a CPU second each
CHECKS = documents.all_checks()


@pytest.mark.oracle
@pytest.mark.parametrize("part", range(PARTS))
def test_every_outcome_is_right_or_listed_with_its_reason(part: int) -> None:
    outcomes = documents.run(CHECKS[part::PARTS])
    assert not documents.unexpected(outcomes), "\n".join(documents.unexpected(outcomes))


def test_ids_are_unique_and_what_is_listed_is_a_check() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids) >= 520
    assert not EXPECTED.keys() - set(ids)
    assert {check.document for check in CHECKS} == set(DOCUMENTS)


def test_at_most_twenty_checks_deviate_and_each_says_why() -> None:
    kinds = [listed.kind for listed in EXPECTED.values()]
    assert kinds.count(Kind.DEVIATES) <= 20
    assert Kind.RIGHT not in kinds
    assert all(len(listed.reason) > 20 and listed.said for listed in EXPECTED.values())


def test_an_outcome_that_the_list_does_not_say_is_unexpected_in_both_directions() -> None:
    def right() -> None:
        return

    def wrong() -> None:
        raise Difference("1 apart")

    document, topic, thing = next(iter(EXPECTED)).split(" / ")
    better, worse = Check(document, topic, thing, right), Check(NVIDIA, "topic", "thing", wrong)
    (gone, new) = documents.unexpected(documents.run([better, worse]))
    assert gone.startswith(f"{better.id}: right; listed as")
    assert new == f"{worse.id}: deviates: 1 apart"


def test_errors_of_onnxq_are_refusals_and_all_others_differences() -> None:
    def refused() -> None:
        raise UnsupportedError("use another")

    def failed() -> None:
        raise ValueError("no")

    asked = [Check(NVIDIA, "topic", "thing", ask) for ask in (refused, failed)]
    assert [outcome(check).kind for check in asked] == [Kind.REFUSED, Kind.DEVIATES]


def test_one_integer_and_one_last_bit_are_differences() -> None:
    with pytest.raises(Difference, match="1 of 3 integers differ, by 1 at most"):
        compare.same_integers(np.array([1, 2, 3]), np.array([1, 3, 3]))
    with pytest.raises(Difference, match="apart"):
        compare.same_array(np.float32(1), np.nextafter(np.float32(1), np.float32(2)))
    with pytest.raises(Difference, match="shape"):
        compare.close(np.zeros(1), np.zeros(()), 1.0)
    with pytest.raises(Difference, match="wanted 2"):
        compare.same(2.0, 2)
    with pytest.raises(Difference):
        compare.close(np.float32("nan"), np.float32(1), 1.0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("def f(x, b=2, a=1): ...", "a is at place 3, wanted 2"),
        ("def f(x, a=1): ...", "no parameter b"),
        ("def f(x, a=1, b=3): ...", "b=3, wanted 2"),
        ("def f(x, a=1, b=2, *, c): ...", "asks for c, too"),
    ],
)
def test_another_call_form_is_a_difference(changed: str, words: str) -> None:
    scope: dict[str, object] = {}
    exec(f"def wanted(x, a=1, b=2): ...\n{changed}", scope)  # the texts above
    with pytest.raises(Difference, match=words):
        compare_forms(parameters(scope["f"]), parameters(scope["wanted"]))


def test_a_wrong_observer_and_a_missing_name_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(self: quantization.MinMaxObserver) -> tuple[torch.Tensor, torch.Tensor]:
        scale, zero_point = super(type(self), self).calculate_qparams()
        return scale * 2, zero_point

    monkeypatch.setattr(quantization.MinMaxObserver, "calculate_qparams", twice, raising=False)
    with pytest.raises(Difference, match="apart"):
        observing.compared("MinMaxObserver", observing.batches(), {})
    monkeypatch.delattr(quantization, "MinMaxObserver")
    with pytest.raises(AttributeError):
        names.there("torch.quantization", "MinMaxObserver")


def test_the_page_counts_each_check_once() -> None:
    outcomes = documents.run([check for check in CHECKS if check.topic == "descriptor"])
    lines = documents.page(outcomes)
    assert lines[2].startswith(f"{len(outcomes)} checks: {len(outcomes) - 1} right, 0 refused")
    (row,) = (line for line in lines if line.startswith(f"| {NVIDIA} | descriptor"))
    assert row.startswith(f"| {NVIDIA} | descriptor | {len(outcomes)} | {len(outcomes) - 1} |")

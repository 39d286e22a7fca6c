"""Counts of what came of all cases, each that went wrong, and the reasons of refusals."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scripts._fuzz.inside import GOOD, Outcome
from scripts._reasons import reason
from scripts._tables import escaped, head, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scripts._fuzz.inside import Ended
    from scripts._fuzz.workers import Result

REASONS = 60  # rows of refusals
FAILURES = 100  # rows of what went wrong
_DIED = (Outcome.CRASH, Outcome.HANG, Outcome.MEMORY)


def failures(results: Sequence[Result]) -> list[tuple[Result, Ended]]:
    """Calls that did what must never happen; not what ONNX Runtime alone does on the input, too."""
    return [
        (result, ended)
        for result in results
        for ended in result.calls
        if ended.outcome not in GOOD and not _by_onnxruntime(result, ended)
    ]


def _by_onnxruntime(result: Result, ended: Ended) -> bool:
    """Whether ONNX Runtime, without onnxq, dies of the same input."""
    return ended.outcome in _DIED and result.alone is not None and result.alone.outcome in _DIED


def lines(results: Sequence[Result]) -> Iterator[str]:
    """The page, in Markdown."""
    yield from _counts(results)
    wrong = failures(results)
    if wrong:
        yield ""
        yield "Went wrong (`--case` brings one back):"
        yield ""
        yield head("case", "what was done", "call", "outcome", "detail")
        for result, ended in wrong[:FAILURES]:
            cells = (result.words, ended.call, ended.outcome.value, ended.detail)
            yield line(result.job.name, *(escaped(cell) for cell in cells))
        if len(wrong) > FAILURES:
            yield line(f"{len(wrong) - FAILURES} more", "", "", "", "")
    yield from _reasons(results)


def _counts(results: Sequence[Result]) -> Iterator[str]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        for ended in result.calls:
            row = counts.setdefault((result.job.kind, ended.call), Counter())
            apart = _by_onnxruntime(result, ended)
            row["ORT's own" if apart else ended.outcome.value] += 1
    columns = [outcome.value for outcome in Outcome] + ["ORT's own"]
    yield head("input", "call", "calls", *columns)
    for (kind, call), row in sorted(counts.items()):
        yield line(kind, call, row.total(), *(row[column] for column in columns))
    total = sum(counts.values(), Counter())
    yield line("all", "", total.total(), *(total[column] for column in columns))


def _reasons(results: Sequence[Result]) -> Iterator[str]:
    runs = [r for r in results if r.alone is not None and r.alone.outcome is Outcome.DONE]
    reasons = Counter(
        (ended.call, reason(ended.detail))
        for result in runs
        for ended in result.calls
        if ended.outcome is Outcome.REFUSED
    )
    if not reasons:
        return
    refused = sum(any(e.outcome is Outcome.REFUSED for e in r.calls) for r in runs)
    yield ""
    yield f"ONNX Runtime alone runs {refused} of the inputs that a call refused. The reasons:"
    yield ""
    yield head("calls", "call", "reason")
    for (call, text), count in reasons.most_common(REASONS):
        yield line(count, call, text)
    if len(reasons) > REASONS:
        yield line(sum(reasons.values()) - sum(c for _, c in reasons.most_common(REASONS)), "", "…")

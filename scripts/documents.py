"""Checks ask onnxq for what PyTorch's and NVIDIA's documents on quantization say, line by line.

    python scripts/documents.py                      # all checks, as a table (seconds)
    python scripts/documents.py --write              # the same, into scripts/documents.md
    python scripts/documents.py --case "1.8 / observers"   # those whose id contains the text

A check is one claim of a document: a name is there, a call form is torch's, a value is that of this
torch on the same input. Its id is `document / topic / thing`. It is right, refused by name (the
error says what to use), or deviates; both of the latter are listed with their reasons in
scripts/_documents/expected.py. The exit code is 1 where an outcome is another one than listed.

Integers are compared exactly, float values bit for bit or within a bound that is derived beside it.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts import _tables
from scripts._documents import (
    amax,
    dynamic,
    faking,
    forms,
    functions,
    modules,
    names,
    observing,
    tensors,
    training,
    workflows,
)
from scripts._documents.check import DOCUMENTS, Check, Kind, Outcome, outcome
from scripts._documents.expected import EXPECTED

PAGE = Path(__file__).with_suffix(".md")
PACKAGES = ("torch", "numpy", "onnx")
PARTS = (
    *(names, forms, tensors, functions, observing, faking, modules),
    *(workflows, dynamic, training, amax),
)
WORDS = 150
"""Most letters of an error's or a difference's text in the page."""


def all_checks() -> list[Check]:
    """Every check, in the order of the page."""
    return [check for part in PARTS for check in part.checks()]


def run(checks: list[Check]) -> dict[Check, Outcome]:
    """The outcome of each."""
    return {check: outcome(check) for check in checks}


def unexpected(outcomes: dict[Check, Outcome]) -> list[str]:
    """Outcomes that the table of refusals and deviations does not say, a line each."""
    lines = []
    for check, found in outcomes.items():
        listed = EXPECTED.get(check.id)
        if listed is None and found.kind is not Kind.RIGHT:
            lines.append(f"{check.id}: {found.kind.value}: {found.text}")
        elif listed is not None and (listed.kind, True) != (found.kind, listed.said in found.text):
            got = f"{found.kind.value} {found.text}".strip()
            lines.append(f"{check.id}: {got}; listed as {listed.kind.value}, {listed.said!r}")
    return lines


def page(outcomes: dict[Check, Outcome]) -> list[str]:
    """The page: counts, what is refused, what deviates, and then every check by topic."""
    total = Counter(found.kind for found in outcomes.values())
    counts = ", ".join(f"{total[kind]} {kind.value}" for kind in Kind)
    lines = [
        "# The documents' claims, one by one",
        "",
        f"{len(outcomes)} checks: {counts}. Printed by `python scripts/documents.py --write` on "
        f"{platform.machine()},",
        f"with {_tables.versions(*PACKAGES)}. scripts/documents.py says what a check is.",
        "",
        _tables.head("document", "checks", *(kind.value for kind in Kind)),
    ]
    for document, title in DOCUMENTS.items():
        kinds = Counter(found.kind for one, found in outcomes.items() if one.document == document)
        row = (f"{document}: {title}", kinds.total(), *(kinds[kind] for kind in Kind))
        lines.append(_tables.line(*row))
    for kind, title in ((Kind.REFUSED, "Refused by name"), (Kind.DEVIATES, "Deviations")):
        lines += ["", f"## {title}", "", _tables.head("check", "what onnxq gives", "reason")]
        for check, found in outcomes.items():
            if found.kind is kind:
                reason = EXPECTED[check.id].reason if check.id in EXPECTED else "not listed"
                text = _tables.escaped(found.text)[:WORDS]
                lines.append(_tables.line(check.id, text, _tables.escaped(reason)))
    return [*lines, *_topics(outcomes)]


def _topics(outcomes: dict[Check, Outcome]) -> list[str]:
    """A table of all checks: a row for each topic of a document."""
    rows: dict[tuple[str, str], list[Check]] = defaultdict(list)
    for check in outcomes:
        rows[check.document, check.topic].append(check)
    lines = [
        "",
        "## Every check",
        "",
        _tables.head("document", "topic", "checks", "right", "things"),
    ]
    for (document, topic), checks in rows.items():
        right = sum(outcomes[check].kind is Kind.RIGHT for check in checks)
        things = _tables.escaped("; ".join(check.thing for check in checks))
        lines.append(_tables.line(document, topic, len(checks), right, things))
    return lines


def main() -> int:
    """Runs the checks and prints the page; 1 where an outcome is not as listed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", help="those whose id contains this")
    parser.add_argument("--write", action="store_true", help=f"write the page, scripts/{PAGE.name}")
    asked = parser.parse_args()
    outcomes = run([check for check in all_checks() if asked.case in check.id])
    _tables.publish(page(outcomes), PAGE if asked.write and not asked.case else None)
    wrong = unexpected(outcomes)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

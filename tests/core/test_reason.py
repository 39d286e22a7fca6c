"""Reasons are values: they survive JSON, and no code reads their words."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from onnxq.core.reason import Reason
from onnxq.core.saved import plain, read
from onnxq.operator.reasons import HowAndWhy, LeftByRequest, OperatorLimit
from onnxq.static.reasons import BelowSqnr, BoundsOutsideRange, SmallerWeights

ROOT = Path(__file__).parent.parent.parent
SENTENCES = {"reason", "reasons", "why", "how", "words", "WORDS"}
"""Names of attributes that hold a reason, or its words."""
OTHERS = ("tuning/", "pytorch/numerics/compiling.py", "core/reason.py")
"""Words of moves of a search, torch's own arguments, and the template itself."""
CUTS = {
    "count", "endswith", "find", "index", "lower", "partition", "removeprefix", "removesuffix",
    "replace", "rpartition", "rsplit", "split", "startswith", "strip",
}  # fmt: skip


class Example(Reason):
    WORDS = "{count} of {share:.1f}"
    count: int
    share: float


@pytest.mark.parametrize(
    "reason",
    [
        LeftByRequest(),
        OperatorLimit("no kernel"),
        HowAndWhy(OperatorLimit("so"), SmallerWeights()),
        BelowSqnr("t", None, 20.5, "Log 'log'", "", 3, 1.25),
        BoundsOutsideRange(1.0, float("inf")),
    ],
    ids=lambda reason: type(reason).__name__,
)
def test_a_reason_survives_json(reason: Reason) -> None:
    text = json.dumps(plain(reason), allow_nan=False)
    assert read(Reason, json.loads(text)) == reason


def test_words_have_the_fields_in_them() -> None:
    assert Example(3, 0.25).words == str(Example(3, 0.25)) == "3 of 0.2"


def test_reasons_of_other_fields_are_others() -> None:
    assert Example(3, 0.25) != Example(3, 0.5)


def test_a_kind_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(LookupError):
        read(Reason, {"kind": "Unheard", "words": "of"})


def _holds_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def _reads_sentence(node: ast.AST) -> bool:
    """Whether it compares a reason or its words, searches or cuts them."""
    if isinstance(node, ast.Compare):
        asks = any(not isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        sides = [node.left, *node.comparators]
        is_named = isinstance(node.ops[0], ast.In | ast.NotIn) and not isinstance(
            node.left, ast.Constant | ast.JoinedStr
        )  # a name among reasons by name
        return asks and not is_named and any(map(_holds_sentence, sides))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in CUTS and _holds_sentence(node.func.value)
    return isinstance(node, ast.Subscript) and _is_cut(node)


def _is_cut(node: ast.Subscript) -> bool:
    return isinstance(node.value, ast.Attribute) and node.value.attr in {"words", "WORDS"}


def reading(source: str) -> list[int]:
    """Lines of a file that read sentences."""
    every = ast.walk(ast.parse(source))
    return [n.lineno for n in every if isinstance(n, ast.expr) and _reads_sentence(n)]


@pytest.mark.parametrize(
    "line",
    [
        "decision.reason == LEFT",
        "' no weights' not in d.reason",
        "decision.how.partition(' ')",
        "found.reason.words.replace('a', 'b')",
        "choice.words[:3]",
    ],
)
def test_a_line_that_reads_a_sentence_is_found(line: str) -> None:
    assert reading(line) == [1]


@pytest.mark.parametrize("folder", ["onnxq", "operators", "scripts"])
def test_no_code_reads_a_sentence(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(other in path.as_posix() for other in OTHERS)
        for line in reading(path.read_text("utf-8"))
    ]
    assert found == []

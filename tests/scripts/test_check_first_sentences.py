from __future__ import annotations

from scripts.check_first_sentences import subjectless

FILE = '''"""What it is for."""

LIMIT = 3
"""Of integers."""
NAME = "x"
"""Name of the thing."""


class Plan:
    """As Prepared, with numbers."""

    size: int
    """Those that count."""

    def integers(self) -> int:
        """Integers of the plan.

        What follows is not looked at.
        """
        "It is no docstring."
        return 0
'''


def test_docstrings_whose_subject_stands_elsewhere_are_found_with_their_lines() -> None:
    assert sorted(subjectless(FILE)) == [
        (1, "What it is for."),
        (4, "Of integers."),
        (10, "As Prepared, with numbers."),
        (13, "Those that count."),
    ]


def test_words_that_only_begin_like_one_are_passed() -> None:
    assert list(subjectless('"""Often used. Itself an array; Ascending."""')) == []

"""Output that a page shows against output that came: words the same, decimals about the same."""

from __future__ import annotations

import math
import re

TOLERANCE = 0.05
"""Share by which a decimal may be off: other processors round sums of floats in other orders."""

_TOKEN = re.compile(r"(\.\.\.)|(?<![\w.])([-+]?\d+\.\d+)(?![\w.]*\d)|([ \t]+)|(\n)")
_CLOCK = re.compile(
    r"x\b| ?[mun]?s\b| (?:CPU )?seconds| microseconds| times as fast| of float's time"
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
ELIDED = "..."
_DECIMAL = r"([-+]?\d+\.?\d*)"


def agrees(shown: str, came: str, *, is_timed: bool) -> bool:
    """Whether the output is the one that is shown.

    Args:
        shown: the page's; `...` in it stands for anything, also for nothing.
        came: what was printed. Spaces at the ends of lines and empty lines at the end do not count.
        is_timed: decimals are a clock's: any number is right. Those ahead of a unit of time, or of
            "times as fast", are so everywhere.
    """
    pattern, numbers = _pattern(_stripped(shown))
    found = re.fullmatch(pattern, _stripped(came), re.DOTALL)
    if found is None:
        return False
    pairs = zip(numbers, found.groups(), strict=True)
    return is_timed or all(_is_near(wanted, float(got)) for wanted, got in pairs)


def elided(shown: str, came: str) -> str:
    """Output that came, with the `...` of the page; the whole of it where lines are others.

    Lines that agree stay as the page has them, a clock's figures among them.
    """
    lines, left = [], came.strip("\n").splitlines()
    for line in shown.strip("\n").splitlines():
        if ELIDED in line:
            lines.append(line)
            continue
        alike = (at for at, other in enumerate(left) if _shape(other) == _shape(line))
        if (at := next(alike, None)) is None:
            return came
        lines.append(line if agrees(line, left[at], is_timed=False) else left[at])
        del left[: at + 1]
    made = "\n".join(lines)
    return made if agrees(made, came, is_timed=False) else came


def _shape(line: str) -> list[str]:
    """The words of a line, all numbers alike."""
    return _NUMBER.sub("0", line).split()


def _pattern(shown: str) -> tuple[str, list[float]]:
    """The pattern that output has to match whole, and the decimals of its groups; NaN: any."""
    parts, numbers, at = [], [], 0
    for token in _TOKEN.finditer(shown):
        parts.append(re.escape(shown[at : token.start()]))
        at = token.end()
        anything, decimal, space, _ = token.groups()
        if anything:
            parts.append(".*?")
        elif decimal:
            parts.append(_DECIMAL)
            is_clock = _CLOCK.match(shown, token.end()) is not None
            numbers.append(math.nan if is_clock else float(decimal))
        else:
            parts.append(r"[ \t]+" if space else r"\s*\n")
    parts.append(re.escape(shown[at:]))
    return "".join(parts), numbers


def _is_near(wanted: float, got: float) -> bool:
    return math.isnan(wanted) or math.isclose(wanted, got, rel_tol=TOLERANCE)


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip()

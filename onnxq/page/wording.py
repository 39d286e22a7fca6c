"""Words for the figures of a page."""

import math

THOUSAND = 1e3
SEEN_US = 0.05
"""Microseconds that are not rounded to 0."""


def decibels(value: float | None) -> str:
    """31.2 dB; equal; nothing in common."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "equal" if value > 0 else "lost"
    return f"{value:.1f} dB"


def part_of_error(value: float | None) -> str:
    """SQNR of a part of an error; a part that is not there has none."""
    return "none" if value == math.inf else decibels(value)


def share_away(db: float) -> str:
    """2.8%: root mean square of the error over that of the float values."""
    return f"{10 ** (-db / 20):.2%}"


def microseconds(value: float | None) -> str:
    """12.3 µs, 1.2 ms."""
    if value is None:
        return "–"
    sign = "−" if value < 0 else ""
    size = abs(value)
    if size >= THOUSAND:
        return f"{sign}{size / THOUSAND:.2f} ms"
    return f"{sign}{size:.1f} µs"


def time_taken(value: float | None) -> str:
    """Microseconds; a node without any is computed with a neighbour, and has none of its own."""
    return "–" if value is not None and value < SEEN_US else microseconds(value)


def change(value: float) -> str:
    """+3.1 µs, −12.0 µs."""
    if abs(value) < SEEN_US:
        return microseconds(0.0)
    return f"+{microseconds(value)}" if value > 0 else microseconds(value)


def share(value: float | None) -> str:
    """0.12%; less than one in ten thousand is not 0.00%."""
    if value is None:
        return "–"
    if 0 < value < 1e-4:
        return "<0.01%"
    return f"{value:.2%}" if value else "0%"


def counting(count: int, noun: str) -> str:
    """1 layer, 2 layers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def number(value: float) -> str:
    """Four digits, without an exponent where it is short."""
    return f"{value:.4g}".replace("-", "−")


def tenth(value: float) -> str:
    """A place in a drawing, to a tenth of its unit."""
    return f"{value:.1f}".removesuffix(".0")

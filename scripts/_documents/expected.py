"""Checks whose outcome is not `right`: which one it is, and why."""

from __future__ import annotations

from dataclasses import dataclass

from scripts._documents.check import Kind


@dataclass(frozen=True, slots=True)
class Expected:
    """A refusal or a deviation that is known.

    Attributes:
        kind: which of both.
        reason: why onnxq does so.
        said: words of the outcome's text: what to use in place, or the difference's beginning.
    """

    kind: Kind
    reason: str
    said: str


EXPECTED: dict[str, Expected] = {}

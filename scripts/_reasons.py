"""Reasons of refusals in words that many models share, to be counted."""

from __future__ import annotations

import re

from scripts._tables import escaped

LONGEST = 160


def reason(message: str) -> str:
    """First sentence of an error, or of the error that stderr holds, without names and numbers."""
    lines = message.strip().splitlines() or [""]
    line = next((x for x in lines if x.startswith("Error: ")), lines[0])
    first = line.removeprefix("Error: ").split(". ")[0].rstrip(".")
    generic = re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", first))
    return escaped(generic)[:LONGEST]

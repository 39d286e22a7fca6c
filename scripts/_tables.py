"""Tables in Markdown as the bench scripts print them, and the SQNR that several of them show."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt


def head(*names: object) -> str:
    """Two lines of a table: the columns' names, and the rule below them."""
    return f"{line(*names)}\n{'|---' * len(names)}|"


def line(*cells: object) -> str:
    """One line of a table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def escaped(text: str) -> str:
    """Text that can stand in a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def versions(*packages: str) -> str:
    """Installed versions: "onnx 1.23.0, numpy 2.4.0"."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def cells(text: str, first: str) -> list[dict[str, str]]:
    """Rows of every table of a Markdown page whose first column has that name: {column: cell}."""
    rows = []
    names: list[str] = []
    for each in text.splitlines():
        parts = [part.strip() for part in each.strip("| ").split(" | ")]
        if not each.startswith("|"):
            names = []
        elif parts[0] == first:
            names = parts
        elif names and not parts[0].startswith("---"):
            rows.append(dict(zip(names, parts, strict=True)))
    return rows


def publish(lines: Iterable[str], path: Path | None) -> None:
    """Prints a page, and writes it to the file where one is given."""
    text = "\n".join(lines)
    print(text)
    if path is not None:
        path.write_text(text + "\n", encoding="utf-8")


def sqnr_db(wanted: npt.NDArray[np.floating], got: npt.NDArray[np.floating]) -> float:
    """Signal of `wanted` over the noise of `got`, in decibels; infinite where nothing differs."""
    signal = wanted.astype(np.float64)
    noise = float(np.square(got - signal).sum())
    return float(10 * np.log10(np.square(signal).sum() / noise)) if noise else np.inf

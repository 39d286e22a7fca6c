"""Milestones: models that a search measured, and their files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.core.atomic import write_atomically
from onnxq.core.saved import plain
from onnxq.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.scoring.score import Score

_POINT = re.compile(r"point-\d+\.yaml")


@dataclass(frozen=True)
class Milestone:
    """A model that was measured on the way.

    Attributes:
        changes: from where the search began, in words.
        score: on the samples of the search.
        qconfig: names the form of every node.
    """

    changes: tuple[str, ...]
    score: Score
    qconfig: QConfigMapping = field(repr=False)

    def to_dict(self) -> dict[str, object]:
        """Plain values; the qconfig as its YAML."""
        return {
            "changes": list(self.changes),
            "score": self.score.to_dict(),
            "qconfig": self.qconfig.to_yaml(),
        }


def save_milestones(folder: str | Path, points: Sequence[Milestone]) -> list[Path]:
    """Writes point-1.yaml and on, and front.json; points of an earlier front there are removed.

    Returns:
        the YAML files; `quantize --qconfig` makes the model of each.

    Raises:
        OutputError: the folder cannot be made or written to; the one that it is in has to be there.
    """
    folder = Path(folder)
    files = [folder / f"point-{number}.yaml" for number in range(1, len(points) + 1)]
    try:
        folder.mkdir(exist_ok=True)
        for old in [path for path in folder.iterdir() if _POINT.fullmatch(path.name)]:
            if old not in files:
                old.unlink()
    except OSError as error:
        raise OutputError(f"'{folder}' cannot be made: {error.strerror or error}.") from error
    for file, point in zip(files, points, strict=True):
        _write(file, point.qconfig.to_yaml())
    shown = [
        {"file": file.name, "changes": list(point.changes), "score": point.score.to_dict()}
        for file, point in zip(files, points, strict=True)
    ]
    _write(folder / "front.json", json.dumps(plain(shown), indent=1, allow_nan=False))
    return files


def _write(file: Path, text: str) -> None:
    write_atomically(file, lambda opened: opened.write(text.encode()))

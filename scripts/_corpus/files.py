"""Kinds of files, told by their first and last bytes: those of this Python's own library."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import numpy as np

from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import MAGIKA

FOLDER = "magika/models/standard_v3_3"
KINDS = {
    ".py": "python",
    ".h": "c",
    ".txt": "txt",
    ".so": "elf",
    ".pyc": "pythonbytecode",
    ".json": "json",
    ".md": "markdown",
    ".c": "c",
    ".png": "png",
    ".html": "html",
    ".sh": "shell",
    ".toml": "toml",
}
EACH = 12
"""Files of a kind: every third is calibrated on, the others are scored."""


def features(data: bytes, size: int, padding: int) -> list[int]:
    """The first and the last `size` bytes, without the space around them, padded."""
    head, tail = data[: 4 * size].lstrip()[:size], data[-4 * size :].rstrip()[-size:]
    missing = (size - len(head)) * [padding]
    return [*head, *missing, *(size - len(tail)) * [padding], *tail]


def kinds() -> Task:
    """File type by the name's ending; endings that the model has no label for are left out."""
    config = json.loads(MAGIKA.read(f"{FOLDER}/config.min.json"))
    labels, size, padding = (
        config[key] for key in ("target_labels_space", "beg_size", "padding_token")
    )
    roots = [Path(sysconfig.get_paths()[key]) for key in ("stdlib", "include")]
    calibrated: list[Batch] = []
    scored: list[tuple[int, Batch]] = []
    for ending, kind in KINDS.items():
        found = sorted(f for root in roots for f in root.rglob(f"*{ending}"))
        own = [f for f in found if "site-packages" not in f.parts]
        big = [f for f in own if f.is_file() and f.stat().st_size > 200]
        for i, file in enumerate(big[:: max(1, len(big) // EACH)][:EACH]):
            data = np.array([features(file.read_bytes(), size, padding)], np.int32)
            if kind not in labels or i % 3 == 0:
                calibrated.append({"bytes": data})
            else:
                scored.append((labels.index(kind), {"bytes": data}))

    def score(predict: Predict) -> float:
        return float(np.mean([predict(batch)[0].argmax() == kind for kind, batch in scored]))

    path = MAGIKA.extract(f"{FOLDER}/model.onnx")
    return Task("magika, kinds of files", path, calibrated, score, "files")

"""Kinds of files, told by their first and last bytes: Python's own library, and what it writes."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import numpy as np

from scripts._corpus.packed import WRITERS
from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import MAGIKA

FOLDER = "magika/models/standard_v3_3"
KINDS = {
    "*.py": "python",
    "*.h": "c",
    "*.so": "elf",
    "*.pyc": "pythonbytecode",
    "test_email/data/msg_*.txt": "eml",
    "*.json": "json",
    "*.md": "markdown",
    "*.png": "png",
    "*.html": "html",
    "*.sh": "shell",
    "*.toml": "toml",
    "*.bat": "batch",
    "*.wav": "wav",
}
"""Names of files -> what is in them. Other texts (*.txt) are of many kinds, which no name tells."""
EACH = 12
"""Files of a kind: every third is calibrated on, the others are scored."""
LEAST_BYTES = 200


def features(data: bytes, size: int, padding: int) -> list[int]:
    """The first and the last `size` bytes, without the space around them, padded."""
    head, tail = data[: 4 * size].lstrip()[:size], data[-4 * size :].rstrip()[-size:]
    missing = (size - len(head)) * [padding]
    return [*head, *missing, *(size - len(tail)) * [padding], *tail]


def found(pattern: str) -> list[bytes]:
    """Files of Python's own library with such names, spread over all that there are."""
    roots = [Path(sysconfig.get_paths()[key]) for key in ("stdlib", "include")]
    files = sorted(f for root in roots for f in root.rglob(pattern))
    own = [f for f in files if "site-packages" not in f.parts and f.is_file()]
    big = [f for f in own if f.stat().st_size >= LEAST_BYTES]
    return [f.read_bytes() for f in big[:: max(1, len(big) // EACH)][:EACH]]


def kinds() -> Task:
    """Kind of a file: 13 kinds that are installed, and those that Python writes."""
    config = json.loads(MAGIKA.read(f"{FOLDER}/config.min.json"))
    labels, size, padding = (
        config[key] for key in ("target_labels_space", "beg_size", "padding_token")
    )
    sources = [b for f in ("*.py", "*.h", "*.so") for b in found(f)]
    files = [(kind, found(pattern)) for pattern, kind in KINDS.items()]
    files += [(kind, [write(b) for b in sources[::3]]) for kind, write in WRITERS.items()]
    calibrated: list[Batch] = []
    scored: list[tuple[int, Batch]] = []
    for kind, each in files:
        for i, data in enumerate(each):
            batch = {"bytes": np.array([features(data, size, padding)], np.int32)}
            if i % 3 == 0:
                calibrated.append(batch)
            else:
                scored.append((labels.index(kind), batch))

    def score(predict: Predict) -> float:
        return float(np.mean([predict(batch)[0].argmax() == kind for kind, batch in scored]))

    path = MAGIKA.extract(f"{FOLDER}/model.onnx")
    return Task("magika, kinds of files", path, calibrated, score, "files", len(scored))

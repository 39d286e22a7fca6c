"""Outputs of which a part is spoilt: what the whole says, and what part of it is named.

    python -m scripts.spoilt_slices scripts/spoilt_slices.md [--models]

Each case is a float output and what quantization is known to make of it; the part that is spoilt is
known. With --models, noise of an equal share of each number is added to every output of
architectures and of models out of packages: nothing of them is spoilt, so that each part that is
named is a false alarm.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onnxq.checking.side_by_side import Pair
from onnxq.quantized.output_verdict import LOW_SQNR_DB, OutputPart
from scripts._tables import head, line, publish

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Reals = npt.NDArray[Any]
SHARE = 10 ** (-30 / 20)
"""Noise over each number where nothing is spoilt: 30 dB."""
ALARM_DB = 3.0
"""A part that is named where it is so far below the whole is an alarm."""


@dataclass(frozen=True)
class Case:
    """An output x of float, y of the spoilt model, and the place of what is spoilt."""

    name: str
    x: Reals
    y: Reals
    axis: int
    slices: tuple[int, ...]

    def found(self) -> tuple[float, OutputPart | None]:
        """(dB of the whole, part that is named)."""
        sums = Pair("y", "y", "y", None).compared(
            self.x.astype(np.float32), self.y.astype(np.float32)
        )
        return sums.compared.sqnr_db, sums.worst_part

    @property
    def is_right(self) -> bool:
        """Whether the spoilt part is named, and its figure is that of the part alone."""
        part = self.found()[1]
        if part is None or (part.axis, part.slices) != (self.axis, self.slices):
            return False
        return math.isclose(part.sqnr_db, self.own_db, abs_tol=0.01)

    @property
    def own_db(self) -> float:
        """SQNR of the spoilt part alone."""
        x, y = (each.take(self.slices, self.axis).astype(np.float32) for each in (self.x, self.y))
        signal, noise = (np.square(each.astype(np.float64)).sum() for each in (x, x - y))
        return float(10 * np.log10(signal / noise)) if noise else math.inf


def rounded(x: Reals, scale: float) -> Reals:
    """Integers of 8 bits times their scale."""
    return np.asarray(np.clip(np.rint(x / scale), 0, 255) * scale)


def cases() -> Iterator[Case]:
    """Cases with their spoilt parts."""
    rng = np.random.default_rng(0)
    boxes, scores = rng.uniform(0, 640, (8, 4, 400)), rng.uniform(0, 1, (8, 6, 400)) ** 4
    detections = np.concatenate([boxes, scores], 1)
    fine = np.concatenate([rounded(boxes, 640 / 255), rounded(scores, 1 / 255)], 1)
    scores_at = tuple(range(4, 10))
    one_scale = rounded(detections, 640 / 255)
    yield Case("one scale for boxes and scores", detections, one_scale, 1, scores_at)
    last = [np.moveaxis(each, 1, 2) for each in (detections, one_scale)]
    yield Case("the same, places ahead of columns", last[0], last[1], 2, scores_at)
    dead = fine.copy()
    dead[:, 7] = 0
    yield Case("a dead class of a detector", detections, dead, 1, (7,))
    logits = rng.normal(0, 3, (256, 80))
    constant = logits + rng.normal(0, 0.02, logits.shape)
    constant[:, 33] = 0
    yield Case("a dead class of a classifier", logits, constant, 1, (33,))
    depth, mask = rng.uniform(0, 80, (4, 1, 32, 32)), rng.normal(0, 2, (4, 1, 32, 32))
    clipped = np.concatenate([rounded(depth, 80 / 255), np.clip(mask, -0.2, 0.2)], 1)
    yield Case("a saturated mask beside depth", np.concatenate([depth, mask], 1), clipped, 1, (1,))
    few = np.concatenate([rng.normal(0, 8, (256, 10)), rng.normal(0, 0.1, (256, 64))], 1)
    moved = few + rng.normal(0, 0.004, few.shape)
    moved[:, 10:] += 0.05
    yield Case("a shifted embedding beside logits", few, moved, 1, tuple(range(10, 74)))
    words = rng.normal(0, 1, (4, 50, 32))
    shifted = words + rng.normal(0, 0.01, words.shape)
    shifted[:, :, 5] += 1.5
    yield Case("one shifted column of an embedding", words, shifted, 2, (5,))


def architecture_alarms(name: str) -> list[str]:
    """False alarms on an architecture with drawn weights."""
    import onnxq
    from scripts._architectures import Size, build

    with tempfile.TemporaryDirectory() as folder:
        module, feeds = build(name, Size.TINY)
        path = Path(folder) / "m.onnx"
        onnxq.export(module, feeds(4, 5), path)
        batches = ({k: v.numpy() for k, v in feeds(8, seed).items()} for seed in range(8))
        return alarms(path, batches)


def alarms(path: Path, batches: Iterable[Mapping[str, Reals]]) -> list[str]:
    """Outputs of a float model of which a part is named though nothing is spoilt."""
    from onnxq.graph.io import load
    from onnxq.ort import runtime

    rng = np.random.default_rng(0)
    pairs: dict[str, Pair] = {}
    with runtime.open_session(load(path), threads=1) as session:
        for given in batches:
            for output, result in zip(session.outputs, session.run(given), strict=True):
                if np.asarray(result).dtype.kind != "f":
                    continue  # integers and truths have no such noise
                x = np.asarray(result, np.float32)
                pair = pairs.setdefault(output, Pair(output, output, output, None))
                y = x * (1 + SHARE * rng.standard_normal(x.shape))
                pair.sums.add(pair.compared(x, y.astype(x.dtype)))
    found = [
        (pair.name, pair.sums.compared.sqnr_db, pair.sums.worst_part) for pair in pairs.values()
    ]
    return [
        f"{output}, {part} (the whole: {db:.1f} dB)"
        for output, db, part in found
        if part is not None and part.sqnr_db < db - ALARM_DB
    ]


def page(has_models: bool) -> Iterator[str]:
    """Lines of the page."""
    yield "# Spoilt slices"
    yield ""
    yield "Printed by `python -m scripts.spoilt_slices`: a whole output, and its worst part."
    yield ""
    yield head("what is spoilt", "whole, dB", "named", "part, dB", "right")
    for case in cases():
        db, part = case.found()
        place, own = ("-", "-") if part is None else (part.place, f"{part.sqnr_db:.1f}")
        low = " (low)" if part is not None and part.sqnr_db < LOW_SQNR_DB else ""
        yield line(case.name, f"{db:.1f}", place, f"{own}{low}", "yes" if case.is_right else "no")
    if not has_models:
        return
    from scripts._architectures import ARCHITECTURES
    from scripts._corpus.packages import MODELS

    drawn = {name: architecture_alarms(name) for name in sorted(ARCHITECTURES)}
    trained = {each.name: alarms(each.path, each.batches(8, seed=0)) for each in MODELS}
    yield ""
    yield "With noise of 30 dB over each number of every float output, nothing is spoilt:"
    yield ""
    yield head("models", "number", "false alarms")
    yield line("architectures with drawn weights", len(drawn), sum(map(len, drawn.values())))
    yield line("trained models out of packages", len(trained), sum(map(len, trained.values())))
    for name, found in (drawn | trained).items():
        yield from (f"\n- {name}: {each}" for each in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--models", action="store_true")
    asked = parser.parse_args()
    publish(page(asked.models), asked.path)

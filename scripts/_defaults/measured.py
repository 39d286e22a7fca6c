"""Figures of a case: error, time, size and score of the file of each way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scripts._tables import sqnr_db
from scripts._timing import Ratio, ratio_of, runs_on, session
from scripts._ways import Way, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scripts._defaults.case import Case, Outputs

ROUNDS = 31
UNTIMED = (Way.PORTABLE,)  # runs the same nodes
WAYS = tuple(way for way in Way if way is not Way.SMALL)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one file.

    Attributes:
        sqnr_db: of the first output over all tests.
        size: of the file over float's.
        making_s: CPU seconds that it took to make.
        score: of the first output; None where the case has none.
        ratio: {condition: CPU time over float's}; empty where it was not timed.
    """

    sqnr_db: float
    size: float
    making_s: float
    score: float | None
    ratio: Mapping[str, Ratio] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """All figures of a case; a way that failed has its error in `failed`."""

    name: str
    float_score: float | None
    figures: Mapping[Way, Figures]
    failed: Mapping[Way, str]


def measure(name: str, case: Case, folder: Path, rounds: int = ROUNDS) -> Row:
    """Makes every file in the folder, and measures it."""
    wanted = _outputs(case.model, case)
    float_score = None if case.score is None else case.score(wanted)
    paths: dict[Way, Path] = {}
    failed: dict[Way, str] = {}
    made: dict[Way, Figures] = {}
    for way in WAYS:
        path = folder / f"{way.name}.onnx"
        begun_s = time.process_time()
        try:
            write(way, case.model, case.calibration, path)
            making_s = time.process_time() - begun_s
            got = _outputs(path, case)
        except Exception as error:  # the peer raises all kinds; the table has a line for it
            failed[way] = f"{type(error).__name__}: {error}"
            continue
        paths[way] = path
        size = path.stat().st_size / case.model.stat().st_size
        score = None if case.score is None else case.score(got)
        made[way] = Figures(sqnr_db(wanted[0], got[0]), size, making_s, score)
    ratios = _ratios(case, paths, rounds)
    figures = {
        way: Figures(m.sqnr_db, m.size, m.making_s, m.score, ratios.get(way, {}))
        for way, m in made.items()
    }
    return Row(name, float_score, figures, failed)


def _outputs(path: Path, case: Case) -> Outputs:
    model = session(path)
    runs = [model.run(None, batch) for batch in case.test]
    return [np.concatenate(parts).astype(np.float64) for parts in zip(*runs, strict=True)]


def _ratios(case: Case, paths: Mapping[Way, Path], rounds: int) -> dict[Way, dict[str, Ratio]]:
    timed = {way: path for way, path in paths.items() if way not in UNTIMED}
    sessions = {way.name: session(path) for way, path in timed.items()}
    sessions["float"] = session(case.model)
    found: dict[Way, dict[str, Ratio]] = {way: {} for way in timed}
    for condition, batch in case.timed.items():
        runs = runs_on(sessions, batch)
        for way in timed:
            found[way][condition] = ratio_of(runs[way.name], runs["float"], rounds)
    return found

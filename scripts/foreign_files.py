"""Quantized and half-precision files that other tools wrote, given to onnxq.

    scripts/foreign_files                          # all of them, an hour
    scripts/foreign_files --tools nncf brevitas    # those of some tools; "wheels": out of packages

Files with QuantizeLinear go to `import_qdq`, for this machine ("auto") and for "portable"; files
whose weights alone are integers, and float16 ones, to `quantize`, `quantize_dynamic` and
`quantize_weights`; files with integer operators to all of these. A dash is a refusal, whose
sentence stands below. dB is against the given file as it says, without ONNX Runtime's
optimizations, on inputs that nothing saw. Time and size are over the given file's; time with all
optimizations on one thread, in turns: median and its interval of 95%. Integers kept: weights whose
integers less their zero points are those of the file, of all that it has. "(silent)": others are
new, and no note says so.

Round trips: what onnxq wrote, given to the same command again.

The exit code is 1 where a result is larger than the given file or silent, where a round trip
changes something, or where onnxq raises something else than its own errors. Each tool has an
environment of its own in .cache/foreign.
The table that this printed is in scripts/foreign_files.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.errors import OnnxqError
from onnxq.graph.given_file import given_size
from onnxq.graph.io import load
from scripts._corpus.packages import MODELS
from scripts._foreign.integers import kept
from scripts._foreign.tools import TOOLS, ToolError
from scripts._foreign.wheels import FOUND
from scripts._tables import escaped, head, line, publish, sqnr_db
from scripts._timing import Ratio, one_thread, ratio_of, runs_on, session

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from onnxq.quantized.quantized_model import QuantizedModel

    Batch = dict[str, Array]

BATCHES, ROWS, ROUNDS = 12, 4, 21
WHEELS = "wheels"
DETECTOR = "nudenet 320n"
SAID = re.compile(r"(\d+) of the weights that the file stores as integers (?:need|get) other")
"""Note on weights that get other integers, and how many these are."""
MAKINGS = (
    ("onnxruntime", "ort U8S8 QDQ", "resnet20"),
    ("onnxruntime", "ort U8S8 QDQ", DETECTOR),
    ("onnxruntime", "ort S8S8 QDQ", "mobilenetv2"),
    ("onnxruntime", "ort U8U8 QDQ", "transformer"),
    ("onnxruntime", "ort U16S8 QDQ", "resnet20"),
    ("onnxruntime", "ort U8S8 QOperator", "resnet20"),
    ("onnxruntime", "ort dynamic", "transformer"),
    ("onnxruntime", "ort 4 bits MatMulNBits", "transformer"),
    ("onnxruntime", "ort 4 bits QDQ", "transformer"),
    ("onnxruntime", "ort float16", "mobilenetv2"),
    ("converter", "converter float16", "transformer"),
    ("nncf", "nncf", "resnet20"),
    ("nncf", "nncf", DETECTOR),
    ("nncf", "nncf transformer", "transformer"),
    ("nncf", "nncf weights int8", "transformer"),
    ("nncf", "nncf weights int4", "transformer"),
    ("modelopt", "modelopt int8", "resnet20"),
    ("modelopt", "modelopt int8", "mobilenetv2"),
    ("modelopt", "modelopt int8 float16", DETECTOR),
    ("modelopt", "modelopt int4 awq", "transformer"),
    ("brevitas", "brevitas", "resnet20"),
    ("brevitas", "brevitas 4 bits", "resnet20"),
    ("onnxsim", "onnxsim int8", "mobilenetv2"),
    ("onnxsim", "onnxsim int16", "resnet20"),
    ("onnxsim", "onnxsim weights int8", "resnet20"),
    ("onnxsim", "onnxsim weights int4", "transformer"),
    ("quark", "quark A8W8", "resnet20"),
    ("quark", "quark XINT8", "mobilenetv2"),
    ("quark", "quark U8S8", "transformer"),
    ("quark", "quark BF16", "resnet20"),
    ("aimet", "aimet", "resnet20"),
    ("aimet", "aimet", "transformer"),
    ("olive", "olive 4 bits", "transformer"),
    ("optimum", "optimum dynamic", "transformer"),
    ("torchao", "torchao PT2E", "transformer"),
)
"""Tool, the form that it writes, float model."""


@dataclass(frozen=True, slots=True)
class File:
    """A given file, inputs to calibrate on, and others to compare."""

    name: str
    path: Path
    seen: list[Batch]
    fresh: list[Batch]


@dataclass(frozen=True, slots=True)
class Came:
    """A result beside the given file.

    Attributes:
        sqnr_db: of the worst output.
        ratio: of times; None: ONNX Runtime's optimizations make of the given file what it refuses.
        size: over the given file's.
        kept: weights with the given integers, and weights that the file stores as integers.
        notes: of the verdict.
    """

    sqnr_db: float
    ratio: Ratio | None
    size: float
    kept: tuple[int, int]
    notes: tuple[str, ...]

    @property
    def is_silent(self) -> bool:
        """Whether more weights got other integers than the notes say."""
        said = sum(int(found[1]) for note in self.notes if (found := SAID.search(note)))
        return self.kept[0] + said < self.kept[1]

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns of the table."""
        integers = f"{self.kept[0]} of {self.kept[1]}" if self.kept[1] else "none"
        silent = " (silent)" if self.is_silent else ""
        return f"{self.sqnr_db:.1f}", str(self.ratio or "-"), f"{self.size:.2f}", integers + silent


Result = Came | str
"""Outcome of a command: a result, or the sentence of a refusal."""
Command = Callable[[File], "QuantizedModel"]
IMPORTS: dict[str, Command] = {
    "import_qdq auto": lambda f: onnxq.import_qdq(f.path, f.seen, target="auto"),
    "import_qdq": lambda f: onnxq.import_qdq(f.path, f.seen),
}
QUANTIZERS: dict[str, Command] = {
    "quantize": lambda f: onnxq.quantize(f.path, f.seen),
    "quantize_dynamic": lambda f: onnxq.quantize_dynamic(f.path),
    "quantize_weights": lambda f: onnxq.quantize_weights(f.path),
}
TRIPS: dict[str, tuple[str, Command]] = {
    "quantize": ("resnet20", QUANTIZERS["quantize"]),
    "quantize, 4 bits": ("resnet20", lambda f: onnxq.quantize(f.path, f.seen, weight_bits=4)),
    "quantize, qoperator": (
        "resnet20",
        lambda f: onnxq.quantize(f.path, f.seen, format="qoperator"),
    ),
    "quantize_dynamic": ("transformer", QUANTIZERS["quantize_dynamic"]),
    "quantize_weights": ("transformer", QUANTIZERS["quantize_weights"]),
    "quantize_weights, qdq": (
        "transformer",
        lambda f: onnxq.quantize_weights(f.path, format="qdq"),
    ),
    "half": ("transformer", lambda f: onnxq.half(f.path, f.seen)),
    "half, 4 bits": ("transformer", lambda f: onnxq.half(f.path, f.seen, weight_bits=4)),
}
"""Command -> the float model that it begins with."""


def commands(path: Path) -> dict[str, Command]:
    """The commands that are to take the file, by its operators."""
    types = {node.op_type for node in load(path).graph.all_nodes()}
    has_integers = any(
        t.startswith(("QLinear", "QGemm", "Dynamic")) or "Integer" in t for t in types
    )
    if has_integers:
        return IMPORTS | QUANTIZERS
    return IMPORTS if "QuantizeLinear" in types else QUANTIZERS


def run(file: File, name: str, command: Command, folder: Path) -> Result:
    """Outcome of the command on the file."""
    path = folder / "result.onnx"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table has what they warn of
            made = command(file)
        made.save(path)
    except OnnxqError as error:
        return f"{error!s:.300}".replace(str(file.path), file.path.name)
    except Exception as error:
        print(f"{file.name}, {name}: {error!r}", file=sys.stderr)
        return f"TRACEBACK {error!r}"
    notes = made.verdict.notes if made.verdict else ()
    size = given_size(load(path)) / given_size(load(file.path))
    opened = session(path)
    wanted, got = (_outputs(each, file.fresh) for each in (session(file.path, _plain()), opened))
    worst = min(sqnr_db(x, y) for x, y in zip(wanted, got, strict=True))
    try:
        runs = runs_on({"result": opened, "given": session(file.path)}, file.fresh[0])
        ratio = ratio_of(runs["result"], runs["given"], ROUNDS)
    except Exception:  # whatever ONNX Runtime raises for a file that its optimizations break
        ratio = None
    return Came(worst, ratio, size, kept(file.path, load(path)), notes)


def _plain() -> onnxruntime.SessionOptions:
    """Options with which a file computes what it says: kernels that are fused may saturate."""
    options = one_thread()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _outputs(
    opened: onnxruntime.InferenceSession, batches: list[Batch]
) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Each output on all batches, flat."""
    every = zip(*(opened.run(None, batch) for batch in batches), strict=True)
    return [np.concatenate([np.ravel(x) for x in one]).astype(np.float32) for one in every]


def sources(folder: Path) -> dict[str, File]:
    """The float models that the tools quantize."""
    from models.cifar10 import load_sample
    from scripts._pages.given import FACTORIES, put

    put([f"{name}.onnx" for name in FACTORIES], folder)
    halves: list[list[Batch]] = [
        [{"image": images[ROWS * i :][:ROWS]} for i in range(BATCHES)]
        for images in (load_sample("calibration")[0], load_sample("test")[0])
    ]
    found = {name: File(name, folder / f"{name}.onnx", *halves) for name in FACTORIES}
    (model,) = (model for model in MODELS if model.name == DETECTOR)
    detector = File(DETECTOR, model.path, model.batches(BATCHES, 0), model.batches(BATCHES, 1))
    return found | {DETECTOR: detector}


def given_files(tools: list[str], folder: Path) -> Iterator[File]:
    """The files of those tools; one line says where a tool makes none."""
    floats = sources(folder)
    for tool, form, name in MAKINGS:
        if tool not in tools:
            continue
        source = floats[name]
        try:
            path = TOOLS[tool].made(form, source.path, source.seen)
        except ToolError as error:
            print(f"{form}, {name}: {error}", file=sys.stderr, flush=True)
            continue
        yield _as_wanted(File(f"{form}, {name}", path, source.seen, source.fresh))
    for model in FOUND if WHEELS in tools else ():
        yield File(model.name, model.path, model.batches(BATCHES, 0), model.batches(BATCHES, 1))


def _as_wanted(file: File) -> File:
    """The file with inputs of the types that it takes: some tools change these."""
    types = {str(x.name): x.dtype for x in load(file.path).graph.inputs}
    seen, fresh = (
        [{n: x.astype(t.numpy()) if (t := types[n]) else x for n, x in b.items()} for b in batches]
        for batches in (file.seen, file.fresh)
    )
    return File(file.name, file.path, seen, fresh)


def round_trip(source: File, command: Command, folder: Path) -> str:
    """Outcome of the command on the file that it made itself."""
    once, twice = folder / "once.onnx", folder / "twice.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        command(source).save(once)
        try:
            command(File(source.name, once, source.seen, source.fresh)).save(twice)
        except OnnxqError as error:
            return str(error).replace(f"'{once}'", "the file")
    same = once.read_bytes() == twice.read_bytes()
    return "the same bytes" if same else "CHANGED"


def page(rows: dict[tuple[str, str], Result], trips: dict[str, str]) -> list[str]:
    """Markdown: a row per file and command, refusals and notes below it, then round trips."""
    lines = [head("file", "command", "dB", "time", "size", "integers kept")]
    for (name, command), result in rows.items():
        cells = result.cells if isinstance(result, Came) else ("-",) * 4
        lines.append(line(name, command, *cells))
    lines += ["", "Refusals:", ""]
    refused: dict[str, list[str]] = {}
    for (name, command), result in rows.items():
        if isinstance(result, str):
            refused.setdefault(escaped(result), []).append(f"{name}: {command}")
    lines += [f"- {'; '.join(which)}: {sentence}" for sentence, which in refused.items()]
    lines += ["", "Notes:", ""]
    lines += [
        f"- {name}, {command}: {escaped(' / '.join(result.notes))}"
        for (name, command), result in rows.items()
        if isinstance(result, Came) and result.notes
    ]
    lines += ["", head("round trip", "second time")]
    return lines + [line(name, escaped(outcome)) for name, outcome in trips.items()]


def is_broken(result: Result) -> bool:
    """Whether the result is larger than the given file, silent, or a traceback."""
    if isinstance(result, str):
        return result.startswith("TRACEBACK")
    return result.size > 1 or result.is_silent


def main() -> int:
    """Prints the table of the tools that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    every = [*TOOLS, WHEELS]
    parser.add_argument("--tools", nargs="*", choices=every, default=every, help="all by default")
    parser.add_argument("-o", "--output", type=Path, help="file that gets the table, too")
    asked = parser.parse_args()
    rows: dict[tuple[str, str], Result] = {}
    trips: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in given_files(asked.tools, folder):
            for command, call in commands(file.path).items():
                rows[file.name, command] = run(file, command, call, folder)
                print(file.name, command, rows[file.name, command], file=sys.stderr, flush=True)
        floats = sources(folder)
        for trip, (model, call) in TRIPS.items():
            trips[trip] = round_trip(floats[model], call, folder)
        publish(page(rows, trips), asked.output)
    changed = any(outcome == "CHANGED" for outcome in trips.values())
    return int(changed or any(map(is_broken, rows.values())))


if __name__ == "__main__":
    sys.exit(main())

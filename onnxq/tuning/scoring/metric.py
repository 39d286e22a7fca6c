"""Metric: one number for a model on samples, higher is better.

    sqnr       dB of the worst output against the float model's; the default
    top1       share of rows whose largest entry is where the float model has it
    kl         minus the KL divergence of a language model's next-token distributions, in bits
    bits       minus the bits per token of a language model (see onnxq.metrics)
    boxes      F1 of a detector's boxes beside the float model's; map: their average precision
    masks      IoU of a segmenter's masks beside the float model's
    words      minus the word error rate of transcripts, the float model's taken for right
    frames     share of frames with the float model's class
    FILE.py:f  f(run, samples) of a user's file, labels and all

Options stand behind the name, as `boxes:format=xyxy,min_score=0.4`; onnxq.metrics has them all.

A function of a user's gets `run`, which takes {input: array} and gives {output: array} (see
ModelRun), and `samples`, whose batches hold the inputs and every other array of the samples:

    def accuracy(run, samples):
        right = [run(batch)["logits"].argmax(1) == batch["labels"] for batch in samples]
        return np.concatenate(right).mean()
"""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import hashlib
import inspect
import math
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from onnxq.core.arrays import Array
from onnxq.core.regular import why_no_file
from onnxq.errors import (
    CalibrationError,
    OnnxqError,
    QConfigError,
    first_line,
    kind_of,
    listed,
    nearest,
)
from onnxq.metrics import Boxes, FloatAgreement, Frames, Masks, Words, minus_bits
from onnxq.tuning.scoring.model_run import ModelRun
from onnxq.tuning.scoring.paired_outputs import PairedOutputs
from onnxq.tuning.scoring.tuning_samples import TuningSamples

Function = Callable[..., object]
"""f(run, samples) -> number."""


class MetricError(QConfigError):
    """A user's metric fails, or gives no number."""


class Kind(enum.Enum):
    """Kind of a metric."""

    SQNR = "sqnr"
    """dB of the worst output."""
    TOP1 = "top1"
    """Share of rows with the largest entry in the same place; of integers, share that is equal."""
    KL = "kl"
    """Bits of KL divergence of a language model's next-token distributions, below 0."""
    BESIDE = "beside"
    """A figure of onnxq.metrics beside the float model's answers."""
    OWN = "own"
    """A function of the user's, or the bits of onnxq.metrics."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number for a model on samples; higher is better.

    Attributes:
        name: "sqnr", "top1", "kl", or the file and function.
        function: of the user's; None: it is built in. It pickles, for other processes.
        made: begins a FloatAgreement; None of the other kinds. It pickles, too.
        fingerprint: of the function's file, or of the source of a function that was given as such;
            the empty string where nobody knows it: then the name alone tells one from another.
    """

    kind: Kind
    name: str
    function: Function | None = None
    fingerprint: str = ""
    made: functools.partial[Any] | None = None

    def to_dict(self) -> dict[str, str]:
        """Plain values: its name, and the fingerprint of its function."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    @property
    def float_value(self) -> float | None:
        """Value of the float model, where it follows from the metric; None: it is measured."""
        if self.made is not None:
            found: FloatAgreement[Any] = self.made()
            return found.BEST
        return {Kind.SQNR: math.inf, Kind.TOP1: 1.0, Kind.KL: 0.0}.get(self.kind)

    def with_layout_of(self, outputs: Iterable[Mapping[str, Array]]) -> tuple[Metric, str]:
        """The metric with the layout that outputs of the float model have, and that in words."""
        if self.made is None:
            return self, ""
        found: FloatAgreement[Any] = self.made()
        for x in outputs:
            found.update(x, x)
        layout = found.layout
        if not found.count:
            raise CalibrationError(
                f"metric '{self.name}': the float model finds nothing in these samples "
                f"({layout.words}). Give samples with what it looks for, or say how to read its "
                "outputs."
            )
        words = f"{layout.words}; the float model finds {found.count}"
        return replace(self, made=functools.partial(self.made, **layout.said)), words

    def value(self, outputs: PairedOutputs | None, run: ModelRun, samples: TuningSamples) -> float:
        """The metric of the model that `run` runs."""
        if self.function is not None:
            return _called(self.name, self.function, run, samples)
        if outputs is None:
            assert self.float_value is not None
            return self.float_value
        if outputs.beside is not None:
            return outputs.beside.value
        if self.kind is Kind.KL:
            return -outputs.kl_bits
        return outputs.worst_db if self.kind is Kind.SQNR else outputs.top1


SQNR = Metric(Kind.SQNR, "sqnr")
TOP1 = Metric(Kind.TOP1, "top1")
KL = Metric(Kind.KL, "kl")
BITS = Metric(Kind.OWN, "bits", minus_bits)
MADE: dict[str, functools.partial[Any]] = {
    "boxes": functools.partial(Boxes),
    "map": functools.partial(Boxes, figure="map"),
    "masks": functools.partial(Masks),
    "words": functools.partial(Words),
    "frames": functools.partial(Frames),
}
BESIDE = [Metric(Kind.BESIDE, name, made=made) for name, made in MADE.items()]
BUILT_IN = {metric.name: metric for metric in (SQNR, TOP1, KL, BITS, *BESIDE)}


def as_metric(value: object) -> Metric:
    """The Metric that a Metric, a name, "FILE.py:function" or a function stands for; None: SQNR."""
    if value is None:
        return SQNR
    if isinstance(value, Metric):
        return value
    if isinstance(value, FloatAgreement):
        given = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return Metric(Kind.BESIDE, repr(value), made=functools.partial(type(value), **given))
    if isinstance(value, str):
        if value in BUILT_IN:
            return BUILT_IN[value]
        name, colon, said = value.partition(":")
        if colon and name in MADE:
            made = functools.partial(MADE[name], **_options(name, said))
            made()  # which refuses values
            return Metric(Kind.BESIDE, value, made=made)
        file = MetricFile.of(value, tuple(BUILT_IN))
        return Metric(Kind.OWN, value, file, file.fingerprint)
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__name__)
        return Metric(Kind.OWN, name, value, _fingerprint(value))
    raise QConfigError(
        f"metric is {kind_of(value)}; wanted {', '.join(BUILT_IN)}, 'FILE.py:function', or a "
        "function(run, samples) that gives a number."
    )


def _options(name: str, said: str) -> dict[str, object]:
    """Options of a metric of onnxq.metrics: "min_score=0.4,format=xyxy"."""
    known = {each.name: each for each in fields(type(MADE[name]())) if each.init}
    found: dict[str, object] = {}
    for part in said.split(","):
        option, equals, text = part.partition("=")
        if not equals or option not in known:
            raise QConfigError(
                f"metric '{name}:{said}': '{part}' is no option; wanted one of "
                f"{', '.join(f'{each}=...' for each in known)}.{nearest(option, known)}"
            )
        found[option] = _value(f"metric '{name}:{said}': {option}", text, str(known[option].type))
    return found


def _value(what: str, text: str, kinds: str) -> object:
    """The first kind of "int | float | str | None" that a text can be read as."""
    for name, kind in (("int", int), ("float", float), ("str", str)):
        if name in kinds:
            with contextlib.suppress(ValueError):
                return kind(text)
    raise QConfigError(f"{what} is '{text}'; wanted a number.")


def _fingerprint(function: Callable[..., object]) -> str:
    """Hash of the function's source, or of its class's; empty where Python has none to show."""
    try:
        return hash_of(
            inspect.getsource(function if inspect.isroutine(function) else type(function))
        )
    except (OSError, TypeError):  # typed at a prompt; written in C
        return ""


def _called(name: str, function: Function, run: ModelRun, samples: TuningSamples) -> float:
    """Number that the function gives."""
    try:
        found = function(run, samples)
    except OnnxqError as error:  # of `run`, in words of its own
        raise type(error)(f"metric '{name}' fails{_place(error)}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever a user's function raises
        raise MetricError(
            f"metric '{name}' fails{_place(error)}: {type(error).__name__}: {first_line(error)}."
            f"{_there_are(error, run, samples)} "
            "It is called as function(run, samples): `run` takes {input: array} and gives {output: "
            "array}; batches of `samples` hold inputs and labels, to be copied before they change."
        ) from error
    number = np.asarray(found)
    if number.shape != () or number.dtype.kind not in "biuf":
        raise MetricError(
            f"metric '{name}' gives {reprlib.repr(found)}; wanted one number, higher is better."
        )
    if not np.isfinite(number):
        raise MetricError(
            f"metric '{name}' gives {float(number)}; wanted a finite number. Are there samples for "
            "it to count?"
        )
    return float(number)


def _there_are(error: BaseException, run: ModelRun, samples: TuningSamples) -> str:
    """Names that there are, where one was asked for that is not there."""
    if not isinstance(error, KeyError) or not error.args or not isinstance(error.args[0], str):
        return ""
    arrays = list(samples[0]) if len(samples) else []
    known = f"the samples hold {listed(arrays)}; the model gives {listed(run.outputs)}"
    return f" There is none of that name: {known}.{nearest(error.args[0], [*arrays, *run.outputs])}"


def _place(error: BaseException) -> str:
    """Where in the user's code it was raised: the innermost line that is no library's or ours."""
    frames, ours = traceback.extract_tb(error.__traceback__)[1:], Path(__file__).parents[2]
    theirs = [f for f in frames if "site-packages" not in f.filename]
    own = [f for f in theirs if not Path(f.filename).is_relative_to(ours)]
    if not own:
        return ""
    return f" at {own[-1].filename}, line {own[-1].lineno}"


@dataclass(frozen=True, slots=True)
class MetricFile:
    """A function of a file; calling it calls that.

    Attributes:
        source: text of the file, so that processes without that file run the same one.
    """

    path: str
    name: str
    source: str

    @classmethod
    def of(cls, text: str, known: Sequence[str]) -> Self:
        """The function that "FILE.py:function" names."""
        file, colon, name = text.rpartition(":")
        if not colon or not file.endswith(".py") or not name.isidentifier():
            raise QConfigError(
                f"metric '{text}' is not known; wanted {', '.join(known)}, or FILE.py:function."
                f"{nearest(text.partition(':')[0], known)}"
            )
        path = Path(file).absolute()
        if why := why_no_file(path):
            raise QConfigError(f"metric '{text}': file '{file}': {why}. Check the path.")
        try:
            source = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QConfigError(f"metric '{text}': {first_line(error)}.") from error
        made = cls(str(path), name, source)
        made.function()
        return made

    @property
    def fingerprint(self) -> str:
        """Hash of the source, and of the modules beside it, which tells versions apart."""
        beside = _beside(Path(self.path).parent, self.source, {})
        return hash_of("\0".join([self.source, *(beside[name] for name in sorted(beside))]))

    def function(self) -> Callable[..., object]:
        """The function."""
        return _function(self.path, self.name, self.source)

    def __call__(self, *arguments: object) -> object:
        """Result of the function."""
        return self.function()(*arguments)


def hash_of(source: str) -> str:
    """Hash of the text of a metric."""
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()


def _beside(folder: Path, source: str, known: dict[str, str]) -> dict[str, str]:
    """Name -> text of the modules in a folder that a source imports, and those that they do."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return known
    for name in dict.fromkeys(_imported(tree)):
        file = folder / f"{name}.py"
        if name not in known and file.is_file():
            text = file.read_text("utf-8", errors="replace")
            known = _beside(folder, text, {**known, name: text})
    return known


def _imported(tree: ast.AST) -> Iterator[str]:
    """First parts of the names of modules that are imported anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@functools.cache
def _function(path: str, name: str, source: str) -> Callable[..., object]:
    """The function of a file that is run once in a process."""
    names: dict[str, object] = {"__name__": Path(path).stem, "__file__": path}
    if (folder := str(Path(path).parent)) not in sys.path:
        sys.path.append(folder)
    try:
        # the user asked for this file to be run
        exec(compile(source, path, "exec"), names)
    except SyntaxError as error:
        raise QConfigError(
            f"metric '{path}:{name}': line {error.lineno}: {error.msg}. Mend the file."
        ) from error
    except (Exception, SystemExit) as error:  # whatever running a user's file raises
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
        place = f"line {lines[-1]}: " if lines else ""
        raise QConfigError(
            f"metric '{path}:{name}': {place}{type(error).__name__}: {first_line(error)}. Mend the "
            "file."
        ) from error
    found = names.get(name)
    if not callable(found):
        functions = [n for n, value in names.items() if callable(value) and not n.startswith("_")]
        raise QConfigError(
            f"metric '{path}' has no function '{name}'; it has {', '.join(functions) or 'none'}."
            f"{nearest(name, functions)}"
        )
    return found

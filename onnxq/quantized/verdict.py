"""Verdict on a quantized model: that it runs, how near to float it is, how fast, how small.

It is what one run on ONNX Runtime showed, on few samples. `verify` and `bench` say it in full.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from onnxq.core.saved import Saved
from onnxq.errors import VerificationError, listed
from onnxq.page.card import card
from onnxq.quantized.output_verdict import (
    INCOMPARABLE,
    LOW_SQNR_DB,
    Answers,
    Collapse,
    OutputVerdict,
)
from onnxq.shown import shown

LEAST_SPEEDUP = 1.05
"""Below it, a run as short as a verdict's does not tell a gain from none; below its inverse, the
model is slower than float."""
GIVEN_FILE = "the given file"
MAX_OUTPUTS = 8
"""Outputs that are said one by one, the worst first; the rest are counted."""


class InputSource(enum.Enum):
    """Inputs that a quantized model was run on."""

    CALIBRATION = "calibration samples"
    """Some of those that its ranges come from: it looks a little better there than elsewhere."""
    NOT_FITTED = "samples that no algorithm fitted"
    """Some of those that its ranges come from, held apart from the algorithms that fit samples."""
    UNSEEN = "samples to check on"
    """Samples that were given for the purpose; no observer saw them."""
    EXAMPLES = "example inputs"
    """Inputs of an export, which compared the model with its module; there is no float model."""
    MADE_UP = "made-up inputs"
    """Random numbers of the right shapes: they show that it runs, not how near to float it is."""
    NONE = "no inputs"
    """None that were made up suit the float model; ONNX Runtime opens the quantized one."""


ENOUGH = 16
"""Samples from which on a verdict stands without a word on their number."""
GIVEN = {InputSource.CALIBRATION: ENOUGH, InputSource.NOT_FITTED: 4 * ENOUGH}
"""Samples to give for so many, where ranges or weights come from these, too."""


@dataclass(frozen=True)
class Verdict(Saved):
    """Verdict of one run of a quantized model on ONNX Runtime.

    Attributes:
        input_source: what it was run on.
        samples: of these that were run.
        samples_in_all: that it was calibrated on, or that were given to check on; 0: none.
        outputs: beside the float model's; empty where there is nothing to compare.
        collapse: where it leaves the float model; None where no output is low, or no place found.
        speedup: CPU time of the float model over its own, on one thread, for one sample where the
            batch is open; None: not measured.
        float_bytes, quantized_bytes: sizes of the models; None: there is no float model.
        integer_nodes, float_nodes: nodes of the float model that ONNX Runtime computes in integers,
            and all others; of a model without one, its own, conversions left out.
        left_in_float: nodes with which ONNX Runtime did not run it.
        notes: what was not looked at, and why; those of the plan, where the caller sees no plan.
        stored_nodes: of float_nodes, those that read integers or float16 from the file, or lie
            between QuantizeLinear and DequantizeLinear.
        speedup_range: interval of 95% for the speedup, which holds what float differs by from
            itself; None: the speedup leaves no doubt, or was not measured.
        taken_back: nodes that are in float since their integers gained nothing, as runs showed.
        float_because: why nothing is quantized any more: no integers gained anything; else empty.
        beside: what it was compared with.
        size_of, speed_of: what float_bytes and speedup are of: "the given file", where that stores
            weights in fewer bits; None: what it was compared with.
        answers: figures of boxes, masks and classes, where outputs are sure to hold such.
    """

    FORMAT: ClassVar[str] = "onnxq verdict 1"
    NOUN: ClassVar[str] = "a verdict"
    ANEW: ClassVar[str] = "Quantize the model anew."

    input_source: InputSource
    samples: int
    samples_in_all: int
    outputs: tuple[OutputVerdict, ...]
    collapse: Collapse | None
    speedup: float | None
    float_bytes: int | None
    quantized_bytes: int
    integer_nodes: int
    float_nodes: int
    left_in_float: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stored_nodes: int = 0
    speedup_range: tuple[float, float] | None = None
    taken_back: tuple[str, ...] = ()
    float_because: str = ""
    beside: str = "float"
    size_of: str | None = None
    speed_of: str | None = None
    answers: tuple[Answers, ...] = ()

    @property
    def is_float(self) -> bool:
        """Whether nothing is quantized: the model is the float model."""
        is_quantized = self.integer_nodes or self.stored_nodes or self.beside != "float"
        return self.float_bytes is not None and not is_quantized

    @property
    def is_slower(self) -> bool:
        """Whether the model is slower than float, its interval included."""
        return self.speedup_range is not None and self.speedup_range[1] < 1

    @property
    def low(self) -> tuple[OutputVerdict, ...]:
        """The outputs below LOW_SQNR_DB."""
        return tuple(output for output in self.outputs if output.is_low)

    @property
    def worst_db(self) -> float:
        """The least SQNR of all outputs of floats and their parts; inf where there is none."""
        floats = [output.known_db for output in self.outputs if output.sqnr_db is not None]
        return min(floats, default=math.inf)

    @property
    def likeness_db(self) -> float:
        """The least likeness to float of all outputs, integers too; inf where there is none."""
        return min((output.likeness_db for output in self.outputs), default=math.inf)

    @property
    def warning(self) -> str:
        """A warning to whom it may concern; empty where something is quantized and none is low."""
        if self.is_float:
            why = "the result is the float model; onnxq.inspect says why"
            return f"nothing is quantized: {self.float_because or why}"
        if not self.low:
            return ""
        worst = min(self.low, key=lambda output: output.known_db)
        said = f"keeps {worst.known_db:.1f} dB of the float model, below {LOW_SQNR_DB:g}"
        if not math.isfinite(worst.known_db):
            said = f"cannot be compared with the float model's, {INCOMPARABLE}"
        where = "" if worst.worst_part is None else f" in {worst.worst_part.place}"
        return (
            f"output '{shown(worst.name)}' {said}{where}. That may ruin the model or do no harm: "
            "measure your own metric, such as accuracy, before you use it."
        )

    def check(self, min_sqnr_db: float) -> None:
        """Returns if every output, and the worst part of it, keeps the bound; NaN keeps none."""
        floats = [o for o in self.outputs if o.sqnr_db is not None]
        broken = [str(o) for o in floats if not o.known_db >= min_sqnr_db]
        if floats and not broken:
            return
        if self.outputs and not floats:
            said = "\n  ".join(str(output) for output in self.outputs)
            raise VerdictError(
                f"the bound of {min_sqnr_db:g} dB is on outputs of floats, and there are none:\n  "
                f"{said}\nGive no such bound, and measure your own metric.",
                self,
            )
        got = "\n  ".join(broken) or "no output was compared with float"
        raise VerdictError(
            f"the bound of {min_sqnr_db:g} dB is broken:\n  {got}\nLeave some nodes in float, give "
            "more samples or another observer, or set a wider bound.",
            self,
        )

    def sentences(self) -> Iterator[str]:
        """Lines that say it."""
        yield self.headline
        yield from self.beside_float()
        if self.collapse is not None and not self.is_float:
            yield str(self.collapse)
        yield from self.remarks()

    @property
    def headline(self) -> str:
        """One line: that it runs, nodes in integers, size, speed."""
        nodes = self.integer_nodes + self.float_nodes
        if self.is_float:
            return (
                f"{self._runs}, and nothing is quantized: its {nodes} nodes are the float model's"
            )
        other = self.speed_of or self.beside
        speed = "" if self.speedup is None else f", {self.speedup:.2f} times as fast as {other}"
        stored = f", {self.stored_nodes} store integers or float16" if self.stored_nodes else ""
        return (
            f"{self._runs}: {self.integer_nodes} of its {nodes} nodes compute in integers{stored}; "
            f"{self.size}{speed}"
        )

    def beside_float(self, most: int = MAX_OUTPUTS) -> Iterator[str]:
        """A line on the samples, then one for each output, the worst first, at most so many."""
        if not self.outputs or self.is_float:
            return
        on = f"{self.samples} of {self.samples_in_all} {self.input_source.value}"
        yield f"beside {self.beside}, on {on}:"
        ordered = sorted(self.outputs, key=lambda o: math.inf if o.sqnr_db is None else o.known_db)
        for output in ordered[:most]:
            yield f"  {output.words(self.beside)}"
        if len(ordered) > most:
            yield f"  and {len(ordered) - most} outputs that are no worse"
        for answers in self.answers:
            yield f"  {answers}"
        if self.samples == 1 or self.samples_in_all < ENOUGH:
            few = "one sample proves" if self.samples == 1 else f"{self.samples} samples prove"
            given = GIVEN.get(self.input_source, 0)
            seen = ", and the model fits what it is made from" if given else ""
            is_prequantized = bool(given) and self.samples_in_all < ENOUGH
            wanted = (
                f"give {given}" if is_prequantized else f"check on {ENOUGH}"
            )  # which are all run
            yield f"{few} little{seen}: {wanted} or more, different from each other"

    def remarks(self) -> Iterator[str]:
        """Lines on its speed, on nodes with which it did not run, and notes."""
        least = LEAST_SPEEDUP if self.integer_nodes else 1 / LEAST_SPEEDUP  # floats need no gain
        if self.speedup is not None and self.speedup < least:
            is_slower = self.speedup < 1 / LEAST_SPEEDUP
            if self.speedup_range is not None:
                is_slower = self.is_slower
            gain = f"it is slower than {self.beside}" if is_slower else "it gains little or no time"
            is_shown = self.beside == "float" and self.integer_nodes  # of nodes, by the report
            report = ": onnxq report shows what loses time" if is_shown else ""
            yield f"{gain} on this machine{report}"
        if self.left_in_float:
            names = listed(self.left_in_float)
            yield f"left in float, since ONNX Runtime does not run it else: {names}"
        yield from self.notes

    @property
    def size(self) -> str:
        """The file's size, as a share of what it was made from."""
        if self.float_bytes is None:
            return f"{self.quantized_bytes} bytes"
        of = self.size_of or ("the float model" if self.beside == "float" else self.beside)
        return f"{self.quantized_bytes / max(self.float_bytes, 1):.0%} of {of}'s size"

    @property
    def _runs(self) -> str:
        if self.input_source is InputSource.NONE:
            return "ONNX Runtime opens it"
        if self.input_source in (InputSource.MADE_UP, InputSource.EXAMPLES):
            return f"it runs (on {self.input_source.value})"
        return "it runs"

    def __str__(self) -> str:
        return "\n".join(map(shown, self.sentences()))

    def _repr_html_(self) -> str:
        return card("Verdict", tuple(self.sentences()))


class VerdictError(VerificationError):
    """A bound on the verdict is broken.

    Attributes:
        verdict: the one that breaks it.
    """

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict

    def __reduce__(self) -> tuple[type[VerdictError], tuple[str, Verdict]]:
        return VerdictError, (str(self), self.verdict)

"""Verdict on a quantized model: that it runs, how near to float it is, how fast, how small.

It is what one run on ONNX Runtime showed, on few samples. `verify` and `bench` say it in full.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from onnxq.core.saved import Saved
from onnxq.errors import VerificationError, listed
from onnxq.page.card import card
from onnxq.shown import shown

MOST_RUNS = 3  # said one by one


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Slices of an output along an axis, and how near to float they are.

    Attributes:
        axis: of the output, from 0.
        slices: their indices along the axis, ascending.
        sqnr_db: over these slices, in dB.
    """

    axis: int
    slices: tuple[int, ...]
    sqnr_db: float

    @property
    def place(self) -> str:
        """Where it is, in words."""
        runs = list(_runs(self.slices))
        said = ", ".join(f"{a} to {b}" if b > a else str(a) for a, b in runs[:MOST_RUNS])
        more = f" and {len(runs) - MOST_RUNS} more ranges" if len(runs) > MOST_RUNS else ""
        noun = "slice" if len(self.slices) == 1 else "slices"
        return f"{noun} {said}{more} of axis {self.axis}"

    def __str__(self) -> str:
        return f"{self.place}: {self.sqnr_db:.1f} dB"


def _runs(indices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of successive indices."""
    starts = [indices[0], *(b for a, b in pairwise(indices) if b != a + 1)]
    stops = [*(a for a, b in pairwise(indices) if b != a + 1), indices[-1]]
    return zip(starts, stops, strict=True)


LOW_SQNR_DB = 15.0
"""Below it, a user's own metric has to say whether the model is any good: outputs then differ from
float by a sixth and more, which may be well or not: a text reader of 12 dB reads 97.7% of the
characters, where float reads 98.5%, and of 8 dB 67.5% (scripts/corpus.md)."""
LEAST_SPEEDUP = 1.05
"""Below it, a run as short as a verdict's does not tell a gain from none; below its inverse, the
model is slower than float."""
MAX_OUTPUTS = 8
"""Outputs that are said one by one, the worst first; the rest are counted."""
INCOMPARABLE = "where float gives zeros or NaN, or another shape"
"""Outputs whose SQNR is no number."""


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


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """An output of the quantized model beside that of the float model.

    Attributes:
        name: of the graph output.
        sqnr_db: of floats; inf where nothing differs. None of integers and booleans.
        agreement: share of equal elements, of integers and booleans; None of floats.
        top1_agreement: share of rows with the same argmax, of logits of a language model of tokens;
            None unless 2-D with 2 columns or more, or such logits.
        worst_part: slices of other power than the rest, such as scores beside boxes, where they
            are further from float than the whole; None: there are none.
        kl_bits: of logits of tokens, and of probabilities, mean divergence from float's.
        kl_error: its standard error, in bits; None for one token.
        kl_of: what it is the mean of: "token" or "row".
    """

    name: str
    sqnr_db: float | None = None
    agreement: float | None = None
    top1_agreement: float | None = None
    worst_part: OutputPart | None = None
    kl_bits: float | None = None
    kl_error: float | None = None
    kl_of: str = "token"

    @property
    def known_db(self) -> float:
        """The SQNR in dB, of the worst part where there is one; -inf where there is none."""
        if self.sqnr_db is None or math.isnan(self.sqnr_db):
            return -math.inf
        return self.sqnr_db if self.worst_part is None else self.worst_part.sqnr_db

    @property
    def likeness_db(self) -> float:
        """The SQNR in dB, of integers and booleans too; inf where nothing differs.

            -10 log10(2 (1 - agreement))

        That is the SQNR of one-hot vectors, of which an integer that changes moves the one: its
        error has twice the power of the vector. 15 dB are 98.4% of equal elements.
        """
        if self.agreement is None:
            return self.known_db
        changed = 2 * (1 - self.agreement)
        return -10 * math.log10(changed) if changed > 0 else math.inf

    @property
    def is_low(self) -> bool:
        """Whether a user's own metric has to decide; NaN is low."""
        return self.sqnr_db is not None and not self.known_db >= LOW_SQNR_DB

    def __str__(self) -> str:
        return self.words("float")

    def words(self, beside: str) -> str:
        """A line that says it.

        Args:
            beside: what the output was compared with.
        """
        said = []
        if self.sqnr_db is not None:
            said.append(f"SQNR {self.sqnr_db:.1f} dB, {self._difference(beside)}")
        if self.worst_part is not None:
            said.append(str(self.worst_part))
        if self.agreement is not None:
            said.append(f"{self.agreement:.2%} of the elements are equal")
        if self.kl_bits is not None:
            error = "" if self.kl_error is None else f" +- {self.kl_error:.2g}"
            said.append(f"KL {self.kl_bits:.2g}{error} bits per {self.kl_of}")
        if self.top1_agreement is not None:
            said.append(f"same top-1 in {self.top1_agreement:.1%}")
        return f"output '{shown(self.name)}': {'; '.join(said)}"

    def _difference(self, beside: str) -> str:
        """In words: root mean square of the difference over that of the float output."""
        assert self.sqnr_db is not None
        if not math.isfinite(self.sqnr_db):
            return f"equal to {beside}" if self.sqnr_db > 0 else INCOMPARABLE
        return f"{10 ** (-self.sqnr_db / 20):.2%} away from {beside}"


@dataclass(frozen=True, slots=True)
class Answers:
    """Figure of what outputs say, the float model's answers taken for right (onnxq.metrics).

    Attributes:
        kind: what is counted: "boxes".
        figure: its name: "F1".
        value: 1 where all answers are float's.
        count: answers of the float model.
        layout: how the outputs were read.
    """

    kind: str
    figure: str
    value: float
    count: int
    layout: str

    def __str__(self) -> str:
        said = f"{self.figure} {self.value:.3f} beside float's {self.count}"
        return f"{self.kind}: {said} ({self.layout})"


@dataclass(frozen=True, slots=True)
class Collapse:
    """The first place where a quantized model leaves its float model.

    Attributes:
        node: of the float model, whose result `tensor` is.
        tensor: the first in graph order whose SQNR is low.
        sqnr_db: of that tensor.
        spoilt_by: nodes, or inputs, whose rounding alone makes the float model's tensor low, with
            those that do so once these are in float; empty: none do.
    """

    node: str
    tensor: str
    sqnr_db: float
    spoilt_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = (
            f"it collapses first behind node '{shown(self.node)}': tensor '{shown(self.tensor)}' "
            f"has {self.sqnr_db:.1f} dB, what comes before it more than {LOW_SQNR_DB:g}. "
        )
        if not self.spoilt_by:
            return f"{place}Try it in float, or with another observer"
        return (
            f"{place}It is spoilt by what it reads: integers of {listed(self.spoilt_by)} are too "
            "coarse for it, or end too early. Leave these and itself in float, all together; or "
            "calibrate on samples like these"
        )


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
        float_is_better: nothing is quantized any more, since no integers gained anything.
        beside: what it was compared with.
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
    float_is_better: bool = False
    beside: str = "float"
    answers: tuple[Answers, ...] = ()

    @property
    def is_float(self) -> bool:
        """Whether nothing is quantized: the model is the float model."""
        return self.float_bytes is not None and not (self.integer_nodes or self.stored_nodes)

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
            return f"nothing is quantized: {self.notes[0] if self.float_is_better else why}"
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
            f"the bound of {min_sqnr_db:g} dB is broken:\n  {got}\nLeave some nodes in float, "
            "calibrate with more samples or another observer, or set a wider bound.",
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
        speed = (
            "" if self.speedup is None else f", {self.speedup:.2f} times as fast as {self.beside}"
        )
        stored = f", {self.stored_nodes} store integers or float16" if self.stored_nodes else ""
        return (
            f"{self._runs}: {self.integer_nodes} of its {nodes} nodes compute in integers{stored}; "
            f"{self._size}{speed}"
        )

    def beside_float(self, most: int = MAX_OUTPUTS) -> Iterator[str]:
        """A line on the samples, then one for each output, the worst first, at most so many."""
        if not self.outputs or self.is_float:
            return
        yield f"beside {self.beside}, {self._where}:"
        ordered = sorted(self.outputs, key=lambda o: math.inf if o.sqnr_db is None else o.known_db)
        for output in ordered[:most]:
            yield f"  {output.words(self.beside)}"
        if len(ordered) > most:
            yield f"  and {len(ordered) - most} outputs that are no worse"
        for answers in self.answers:
            yield f"  {answers}"
        if self.samples == 1:
            yield "one sample proves little: give 16 or more, different from each other"

    def remarks(self) -> Iterator[str]:
        """Lines on its speed, on nodes with which it did not run, and notes."""
        if self.speedup is not None and self.speedup < LEAST_SPEEDUP and self.integer_nodes:
            is_slower = self.speedup < 1 / LEAST_SPEEDUP
            if self.speedup_range is not None:
                is_slower = self.is_slower
            gain = f"it is slower than {self.beside}" if is_slower else "it gains little or no time"
            yield f"{gain} on this machine: onnxq report shows what loses time"
        if self.left_in_float:
            names = listed(self.left_in_float)
            yield f"left in float, since ONNX Runtime does not run it else: {names}"
        yield from self.notes

    @property
    def _size(self) -> str:
        if self.float_bytes is None:
            return f"{self.quantized_bytes} bytes"
        whose = "the float model's" if self.beside == "float" else f"{self.beside}'s"
        return f"{self.quantized_bytes / max(self.float_bytes, 1):.0%} of {whose} size"

    @property
    def _runs(self) -> str:
        if self.input_source is InputSource.NONE:
            return "ONNX Runtime opens it"
        if self.input_source in (InputSource.MADE_UP, InputSource.EXAMPLES):
            return f"it runs (on {self.input_source.value})"
        return "it runs"

    @property
    def _where(self) -> str:
        return f"on {self.samples} of {self.samples_in_all} {self.input_source.value}"

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

"""Verdict on one output of a quantized model: how near to float it is, as a whole and in parts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from onnxq.errors import listed
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
        more = f" and {len(runs) - MOST_RUNS} more" if len(runs) > MOST_RUNS else ""
        noun = "slice" if len(self.slices) == 1 else "slices"
        return f"{noun} {said}{more} of axis {self.axis}"

    def __str__(self) -> str:
        return f"{self.place}: {self.sqnr_db:.1f} dB"


def _runs(indices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of successive indices."""
    starts = [indices[0], *(b for a, b in pairwise(indices) if b != a + 1)]
    stops = [*(a for a, b in pairwise(indices) if b != a + 1), indices[-1]]
    return zip(starts, stops, strict=True)


FEW_ANSWERS = 30  # a share of these is known to a tenth
LOW_SQNR_DB = 15.0
"""Below it, a user's own metric has to say whether the model is any good: outputs then differ from
float by a sixth and more, which may be well or not: a text reader of 12 dB reads 97.7% of the
characters, where float reads 98.5%, and of 8 dB 67.5% (scripts/corpus.md)."""
INCOMPARABLE = "where float gives zeros or NaN, or another shape"
"""Outputs whose SQNR is no number."""


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
        layout: how the outputs were read; empty: not to be said.
    """

    kind: str
    figure: str
    value: float
    count: int
    layout: str

    def __str__(self) -> str:
        few = " (few)" if self.count < FEW_ANSWERS else ""
        said = f"{self.figure} {self.value:.3f} beside float's {self.count} {self.kind}{few}"
        return f"{self.kind}: {said}{f' ({self.layout})' if self.layout else ''}"


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

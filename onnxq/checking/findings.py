"""Findings of verify: a value to print, to save as JSON, to hold against bounds."""

import math
from collections.abc import (
    Iterator,
    Mapping,  # the codec reads annotations at run time
)
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol, Self

from onnxq.core.brief import brief
from onnxq.core.saved import Saved
from onnxq.errors import VerificationError, in_lines
from onnxq.page.card import Table, card_of
from onnxq.page.wording import decibels, share
from onnxq.quantized.output_verdict import Answers, OutputPart  # the codec reads annotations
from onnxq.static.arguments import check_bound, check_decibels


class Reported(Protocol):
    """Models and samples that findings are of, where they are at hand: they write the report."""

    def write(self, path: Path) -> object:
        """Writes it to a file."""


@dataclass(frozen=True, slots=True)
class TensorFinding:
    """Tensor T of the float model beside the dequantized integers T_quantized.

    Attributes:
        scale: one step.
        sqnr_db: inf where nothing differs.
        max_error_lsb: largest difference in multiples of the scale.
        saturated_share: part of the float values that lie beyond what the integers reach.
        node: of the float model, that computes it; empty: it is an input, or not known.
    """

    name: str
    dtype: str
    scale: float
    elements: int
    sqnr_db: float
    cosine: float
    max_error_lsb: float
    saturated_share: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class OutputFinding:
    """An output of the float model beside the output of that name of the quantized one.

    Attributes:
        sqnr_db: inf where nothing differs.
        max_error_lsb: the same in multiples of the scale; None where the output has no integers.
        top1_agreement: share of rows with the same argmax; None unless 2-D with 2 columns or more.
        agreement: share of equal elements of an output of integers or booleans, on which no bound
            in dB is; None: it is of floats.
        worst_part: slices of other power than the rest, such as scores beside boxes, where they
            are further from float than the whole; None: there are none.
        nonfinite_pairs: elements that are the same NaN or Inf in both, which SQNR leaves out.
    """

    name: str
    elements: int
    sqnr_db: float
    cosine: float
    max_error: float
    max_error_lsb: float | None
    top1_agreement: float | None
    agreement: float | None = None
    worst_part: OutputPart | None = None
    nonfinite_pairs: int = 0


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A quantized tensor or an output that could not be compared, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A node that the file puts between integers, but that ONNX Runtime runs in float."""

    name: str
    op_type: str


@dataclass(frozen=True)
class Execution:
    """Nodes that ONNX Runtime makes of the quantized model, counted in its optimized graph.

    Attributes:
        integer_nodes: op type -> nodes that compute on integers.
        float_nodes: op type -> nodes that compute on floats.
        conversions: op type -> nodes that only convert between the two.
        fallbacks: nodes meant to run in integers that do not.
        providers: execution provider -> nodes that it gets, where another than the CPU's is asked
            for. The counts above are the CPU provider's: others do not say what they compute in.
    """

    integer_nodes: Mapping[str, int]
    float_nodes: Mapping[str, int]
    conversions: Mapping[str, int]
    fallbacks: tuple[Fallback, ...]
    providers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings(Saved):
    """Float and quantized model side by side on samples.

    Attributes:
        tensors: in the order of the quantized graph.
        answers: figures of boxes, masks and classes on a few of the samples, where outputs are
            sure to hold such.
    """

    FORMAT: ClassVar[str] = "onnxq findings 1"
    NOUN: ClassVar[str] = "findings"
    ANEW: ClassVar[str] = "Run verify anew."

    float_hash: str
    quantized_hash: str
    batches: int
    tensors: tuple[TensorFinding, ...]
    outputs: tuple[OutputFinding, ...]
    unmatched: tuple[Unmatched, ...]
    execution: Execution
    answers: tuple[Answers, ...] = ()

    _reported: ClassVar[Reported | None] = None

    __repr__ = brief

    def _repr_html_(self) -> str:
        worst = sorted(
            self.tensors, key=lambda t: -math.inf if math.isnan(t.sqnr_db) else t.sqnr_db
        )
        outputs = tuple((o.name, decibels(o.sqnr_db), f"{o.cosine:.6f}") for o in self.outputs)
        tensors = tuple(
            (t.name, decibels(t.sqnr_db), f"{t.max_error_lsb:.1f}", share(t.saturated_share))
            for t in worst
        )
        return card_of(
            self,
            Table(("output", "SQNR", "cosine"), outputs),
            Table(("tensor, worst first", "SQNR", "largest error, LSB", "saturated"), tensors),
        )

    def reported_by(self, reported: Reported) -> Self:
        """The same findings, with what writes their report."""
        found = replace(self)
        object.__setattr__(found, "_reported", reported)  # no field: not compared, not saved
        return found

    def report(self, path: str | Path) -> None:
        """Writes an HTML report, one file that opens offline: what costs accuracy, and time.

        The models and a few of the samples that verify ran are looked at again for it, on one
        thread: local errors, histograms, times of nodes.
        """
        if self._reported is None:
            raise VerificationError(
                "these findings have no models to look at: they were loaded, or come from another "
                "process. Call onnxq.verify here, or run `onnxq report FLOAT QUANTIZED SAMPLES -o "
                f"{path}`."
            )
        self._reported.write(Path(path))

    def check(self, min_sqnr_db: float | None = None, max_lsb: float | None = None) -> None:
        """Returns if every compared tensor and float output keeps the bounds; NaN keeps none.

        Indices and classes have no decibels: outputs of integers keep any bound on the SQNR.
        """
        check_decibels(min_sqnr_db)
        check_bound("max_lsb", max_lsb)
        broken: list[str] = []
        if min_sqnr_db is not None:
            broken += _below(min_sqnr_db, list(self._sqnr()))
        if max_lsb is not None:
            broken += _above(max_lsb, list(self._lsb()))
        if not broken:
            return
        raise VerificationError(
            f"{len(broken)} bound(s) broken:{in_lines(broken)}\n{self._remedy()}"
        )

    def _remedy(self) -> str:
        if self.tensors:
            return (
                "They stand in graph order: begin with the first. Leave its node in float "
                "(--exclude NODE, exclude=[...]), calibrate with more samples or another observer, "
                "or set a wider bound."
            )
        return (
            "No tensor has integers of a fixed scale: what is quantized when the model runs shows "
            "in its outputs alone. Leave some nodes in float in the qconfig, another precision or "
            "more bits, or set a wider bound."
        )

    def _sqnr(self) -> Iterator[tuple[str, float]]:
        yield from ((_place(t), t.sqnr_db) for t in self.tensors)
        for o in self.outputs:
            if o.agreement is None:
                yield f"output '{o.name}'", o.sqnr_db
            if o.worst_part is not None:
                yield f"output '{o.name}', {o.worst_part.place}", o.worst_part.sqnr_db

    def _lsb(self) -> Iterator[tuple[str, float]]:
        yield from ((_place(t), t.max_error_lsb) for t in self.tensors)
        for o in self.outputs:
            if o.max_error_lsb is not None:
                yield f"output '{o.name}'", o.max_error_lsb


def _place(tensor: TensorFinding) -> str:
    """A tensor in a message, with the node to look at."""
    node = f" of node '{tensor.node}'" if tensor.node else ""
    return f"tensor '{tensor.name}'{node}"


def _below(bound: float, got: list[tuple[str, float]]) -> list[str]:
    if not got:
        return [f"min SQNR {bound:g} dB: nothing of floats was compared"]
    return [
        f"{where}: SQNR {v:.2f} dB, wanted at least {bound:g}" for where, v in got if not v >= bound
    ]


def _above(bound: float, got: list[tuple[str, float]]) -> list[str]:
    if not got:
        return [
            f"max error {bound:g} LSB: no compared tensor has a scale to count in; bound the "
            "SQNR instead (min_sqnr_db, --min-sqnr DB)"
        ]
    return [
        f"{where}: max error {v:.2f} LSB, wanted at most {bound:g}"
        for where, v in got
        if not v <= bound
    ]

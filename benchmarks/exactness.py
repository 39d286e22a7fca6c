"""Every kernel of the catalog against ONNX Runtime, over at least 200,000 random elements each.

    python -m benchmarks exactness                   # all operators; some minutes
    python -m benchmarks exactness Conv QLinearConv  # some of them

The operators are those that onnxq.catalog finds, those of installed packages included, and the
shapes are those of their own cases(), grown along the first axis where the operator allows that.
Integers are uniform over the whole type. Scales: fitted to the data, powers of two (ties), too
small (saturation) and too large; zero points: fitted, and at both ends of the type.

An Operator of the float model is run in its lowered form, an IntegerOperator as the node that it
is. Bounds, and the exit code is 1 where one is broken:

    exact      no element differs
    1 step     FLOAT_BETWEEN_QDQ: ONNX Runtime computes by
               polynomials of its own: at most 1 step in at most 1 of 10,000 elements
    bound()    the kernel's own bound, of sums of floats whose order depends on the machine

"refused" counts draws whose result would be an overflow of ONNX Runtime: the kernel says so
(UnsupportedError) in place of reproducing it. uint8 with int8 weights is exact only where products
are summed in int32: x86 with VNNI, or ARM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Missed, Row, Table
from benchmarks.parts.trials import Inputs, Validation, float_trials, integer_trials
from onnxq import catalog
from onnxq.errors import UnsupportedError
from onnxq.operator import IntegerOperator, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ELEMENTS = 200_000
MAX_ROUNDS = 20_000  # over the trials of one row; many only where cases are tiny
FLOAT_SHARE = 1e-4  # of elements that a float operator may leave one LSB away
SEED = 0

OPERATORS = Table(
    "operators",
    {
        **{"operator": "", "domain": "", "types": "", "bound": "", "elements": ","},
        **{"mismatches": ",", "largest": ".3g", "refused": ""},
    },
    keys=4,
)


@dataclass
class Counted:
    """Counts over one operator and one pair of types.

    Attributes:
        wanted: elements, at least.
        bound: as Trial.kind.
        mismatches: elements that differ.
        largest: difference; steps of integers, or reals.
        refused: draws that would overflow in ONNX Runtime.
        beyond: elements further apart than the bound allows.
        first: where the first mismatch was.
    """

    operator: str
    domain: str
    types: str
    wanted: int
    bound: str = "exact"
    elements: int = 0
    mismatches: int = 0
    largest: float = 0.0
    refused: int = 0
    beyond: int = 0
    first: str = ""

    @property
    def good(self) -> bool:
        """Whether the bound holds, over enough elements."""
        if self.bound == "1 step":
            within = self.largest <= 1 and self.beyond <= FLOAT_SHARE * self.elements
        else:
            within = not self.beyond
        return within and self.elements >= self.wanted

    @property
    def why(self) -> str:
        """Fault, in words, where the row is not good."""
        if self.elements < self.wanted:
            return f"{self.elements:,} elements compared; wanted {self.wanted:,}. {self.first}"
        return f"{self.beyond:,} elements beyond the bound; first in {self.first}"

    def note(self, mismatches: int, largest: float, label: str) -> None:
        """Adds elements that differ."""
        self.mismatches += mismatches
        self.largest = max(self.largest, largest)
        self.first = self.first or label

    def row(self) -> Row:
        """Cells of the table."""
        names = (self.operator, self.domain or "ai.onnx", self.types, self.bound)
        counts = (self.elements, self.mismatches, self.largest, self.refused or "")
        return OPERATORS.row(*names, *counts)


def rows_of(operator: Operator | IntegerOperator, domain: str, elements: int) -> list[Counted]:
    """A row per pair of types and bound, each with at least that many elements."""
    random = np.random.default_rng(SEED)
    if isinstance(operator, IntegerOperator):
        trials = list(integer_trials(operator, domain, random))
    else:
        trials = list(float_trials(operator, random))
    if not trials:
        nothing = "none of its cases runs in integers"
        return [Counted(operator.op_type, domain, "-", elements, first=nothing)]
    rows = []
    for key in dict.fromkeys((validation.types, validation.kind) for validation in trials):
        row = Counted(operator.op_type, domain, key[0], elements, key[1])
        same = [validation for validation in trials if (validation.types, validation.kind) == key]
        for _ in range(MAX_ROUNDS):
            for validation in same:
                count(row, validation, validation.draw(random))
            if row.elements >= elements or not row.elements:
                break
        rows.append(row)
    return rows


def count(row: Counted, validation: Validation, inputs: Inputs) -> None:
    """Adds one draw of a trial to its row."""
    try:
        got = validation.kernel(inputs)
    except UnsupportedError:
        row.refused += 1
        return
    except Exception as error:  # a kernel that fails where ONNX Runtime runs is a row of its own
        row.note(0, np.inf, f"{validation.label}: {type(error).__name__}: {error}")
        row.beyond += 1
        return
    bound = validation.bound(inputs)
    theirs = validation.ort(inputs)
    if len(got) < len(theirs):
        row.note(0, np.inf, f"{validation.label}: {len(got)} outputs of {len(theirs)}")
        row.beyond += 1
        return
    # a kernel gives all outputs, a case may name fewer
    for slot, (y, wanted) in enumerate(zip(got, theirs, strict=False)):
        row.elements += y.size
        if y.shape != wanted.shape or y.dtype != wanted.dtype:
            row.note(y.size, np.inf, f"{validation.label}: {y.dtype}{y.shape}")
            row.beyond += y.size
            continue
        same = (y == wanted) | ((y != y) & (wanted != wanted))
        if same.all():
            continue
        with np.errstate(all="ignore"):
            far = np.where(same, 0, np.abs(y.astype(np.float64) - wanted.astype(np.float64)))
        row.note(int(np.count_nonzero(~same)), float(np.nanmax(far)), validation.label)
        limit = bound if bound is not None and slot == 0 else 0.0
        row.beyond += int(np.count_nonzero(~(far <= limit)))


@benchmark(OPERATORS)
@click.option("--elements", default=ELEMENTS, show_default=True, help="of a row, at least")
@click.argument("operators", nargs=-1, metavar="[OP_TYPE]...")
def measure(elements: int, operators: Sequence[str]) -> Iterator[Row | Missed]:
    """A row per operator and pair of types, and the bounds that are broken."""
    for operator, domain in chosen(operators):
        for each in rows_of(operator, domain, elements):
            yield each.row()
            if not each.good:
                yield Missed(f"{each.operator} {each.types}: {each.why}")
    if not operators:
        yield from (Missed(f"{name}: no lowering or no kernel") for name in left_out())


def left_out() -> Iterator[str]:
    """Operators of which there is nothing to compare."""
    for operator in catalog.all_operators():
        if not (operator.has_lowering() and operator.has_kernel()):
            yield operator.op_type


def chosen(names: Sequence[str]) -> Iterator[tuple[Operator | IntegerOperator, str]]:
    """(operator, domain) of that name, or all that have something to compare."""
    for operator in catalog.all_operators():
        comparable = operator.has_lowering() and operator.has_kernel()
        if comparable and (not names or operator.op_type in names):
            yield operator, operator.domain
    for on_integers in catalog.all_integer_operators():
        if not names or on_integers.op_type in names:
            yield from ((on_integers, domain) for domain in on_integers.domains)

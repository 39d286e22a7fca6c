"""Random float graphs, quantized in five ways, held against ONNX Runtime integer by integer.

    scripts/random_graphs                              # 1,000 graphs, some 20 minutes
    scripts/random_graphs --first 4200 --count 1 --verbose
    scripts/random_graphs --count 400 --write scripts/random_graphs.md

A graph has 4 to 12 layers (scripts/_random_graphs): convolutions in 1 to 3 dimensions, transposed
ones, pools, Gemm, MatMul and Add, attention, LSTM, GRU, RNN, norms, resize, pad, split, If; opsets
13 to 21, sizes known or not, tied weights, several outputs. Graphs of odd seeds have the steps of
scripts/_random_graphs/families.py too (bodies, indices, strings, tensors without elements, batches
that a constant fixes, new operators), opsets 7 to 23, constants that are inputs or nodes, and some
are in float16. In every third graph weights are pruned in a third of their columns, all zero, tiny,
denormal, huge, or have one outlier. Each graph is quantized as QDQ and QOperator with all integers,
as `quantize` does by default, dynamically, and group-wise by `quantize_weights`; `cross_check`
compares every integer that ONNX Runtime computes, and every output.

    differing     integers node by node; outputs end to end, by more than float nodes round
    not loaded    files that ONNX Runtime does not run, though it runs the float model
    refused       models that onnxq refuses to quantize, in words, which the page lists
    tracebacks    errors that are not onnxq's
    not drawn     graphs that ONNX Runtime does not run in float, whose numbers are not finite, or
                  whose function its optimizer changes (1.31 fuses a Pad of zeros into a MaxPool,
                  which pads with the lowest number)

The exit code is 1 where something differs, was not compared, or ends in a traceback. The page that
this wrote is scripts/random_graphs.md.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.errors import OnnxqError
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import (
    Choice,
    QConfigDynamic,
    default_qconfig_mapping,
    onnxq_default_dynamic_qconfig,
)
from scripts._random_graphs import Drawn, Weights, draw, is_wide, nodes_of
from scripts._tables import head, line, publish, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMS = ("qdq", "qoperator", "default", "dynamic", "weights")
BITS = (4, 8, 2)  # of `quantize_weights`, by seed
TARGETS = ("x86-vnni", "x86-vnni", "portable")  # by seed
INTEGER, STORED = Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY
DYNAMIC = {"Gemm": INTEGER, "GRU": INTEGER, "LSTM": INTEGER, "MatMul": INTEGER, "Conv": STORED}
COUNT = 1000
REFUSED = ": refused: "
PRINT_EVERY = 100
MOST_WORDS = 200  # of a refusal, in letters


@dataclass
class Row:
    """Counts over graphs in one form.

    Attributes:
        models: compared.
        nodes: integer nodes of them.
        elements: of these nodes.
        integers: elements that differ, node by node.
        outputs: that differ end to end, by more than rounding.
        unchecked: integer nodes that nobody compared, though they ran.
        not_loaded: files that ONNX Runtime does not run.
        refused: models that onnxq refuses.
        tracebacks: errors that are not onnxq's.
        faults: what differs and why, by seed.
    """

    models: int = 0
    nodes: int = 0
    elements: int = 0
    integers: int = 0
    outputs: int = 0
    unchecked: int = 0
    not_loaded: int = 0
    refused: int = 0
    tracebacks: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Row) -> None:
        """Adds the counts of another."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults


COUNTS = (
    "models", "nodes", "elements", "integers", "outputs", "unchecked", "not_loaded", "refused",
    "tracebacks",
)  # fmt: skip
ALIKE = 0.01
"""Share of the largest number that orders of sums, float16 and ties in a Round can change."""
BAD = ("integers", "outputs", "unchecked", "tracebacks")


def is_model(drawn: Drawn) -> bool:
    """Whether ONNX Runtime runs it in float, optimized and as it is alike, in finite numbers."""
    outputs = []
    try:
        for how in (runtime.Optimization.ALL, runtime.Optimization.NONE):
            model = ir.from_proto(proto(drawn))
            with runtime.open_session(model, threads=1, optimization=how) as session:
                found = [y for batch in drawn.samples for y in session.run(batch)]
            outputs.append([y for y in found if isinstance(y, np.ndarray)])
    except OnnxqError:
        return False
    return all(
        np.isfinite(x).all()
        and np.allclose(x, y, rtol=ALIKE, atol=ALIKE * np.abs(y).max(initial=0))
        for x, y in zip(*outputs, strict=True)
        if x.dtype.kind == "f"
    )


def proto(drawn: Drawn) -> onnx.ModelProto:
    """The float model."""
    return onnx.load_from_string(drawn.model)


def made(drawn: Drawn) -> Iterator[tuple[str, Callable[[], ir.Model]]]:
    """(form, what quantizes the model in it)."""
    target = TARGETS[drawn.seed % len(TARGETS)]
    bits = BITS[drawn.seed // 2 % len(BITS)]

    def static(file_format: str) -> ir.Model:
        every = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
        prepared = onnxq.prepare(proto(drawn), every, target)
        plan = onnxq.plan(prepared, onnxq.calibrate(prepared, drawn.samples))
        return onnxq.rewrite(prepared, plan, format=file_format)

    yield "qdq", lambda: static("qdq")
    yield "qoperator", lambda: static("qoperator")
    kept = onnxq.Check(repair=None)  # small graphs are faster in float
    yield (
        "default",
        lambda: onnxq.quantize(proto(drawn), drawn.samples, target=target, check=kept),
    )
    yield (
        "dynamic",
        lambda: onnxq.quantize_dynamic(proto(drawn), spec(drawn), target=target, check=kept),
    )
    yield "weights", lambda: onnxq.quantize_weights(proto(drawn), drawn.samples, bits=bits)


def spec(drawn: Drawn) -> dict[str, QConfigDynamic]:
    """All linear layers and cells in integers: by default, most are too small to gain from it."""
    weight = onnxq_default_dynamic_qconfig.weight
    found = {node.op_type for node in nodes_of(proto(drawn).graph.node)}
    found |= {"MatMul"} if "Einsum" in found else set()  # which becomes one
    return {
        op_type: QConfigDynamic(weight, form)
        for op_type, form in DYNAMIC.items()
        if op_type in found
    }


def compared(model: ir.Model, drawn: Drawn, form: str) -> Row:
    """The Row of one model."""
    where = f"seed {drawn.seed} ({drawn.kind.value} weights), {form}"
    try:
        with runtime.open_session(model, threads=1) as session:
            for batch in drawn.samples:
                session.run(batch)
    except OnnxqError as error:
        return Row(not_loaded=1, faults=[f"{where}: not loaded: {error}"])
    found = onnxq.cross_check(model, drawn.samples[:2])
    row = Row(models=1, nodes=len(found.nodes), unchecked=len(found.uncompared))
    for node in found.nodes:
        row.elements += node.elements
        if node.differing or node.problem:
            row.integers += max(node.differing, 1)
            what = f"{node.op_type} '{node.name}'"
            row.faults.append(f"{where}: {what} differs in {node.differing}. {node.problem}")
    row.faults += [f"{where}: {n.op_type} '{n.name}': {n.reason}" for n in found.uncompared]
    for output in found.outputs:
        if (output.differing and not found.is_rounding(output)) or output.problem:
            row.outputs += 1
            row.faults.append(
                f"{where}: output '{output.name}' differs in {output.differing} of "
                f"{output.elements} by {output.largest} {output.unit} ({output.rounding} are "
                f"rounding); first node: {found.first_difference}. {output.problem}"
            )
    if found.end_to_end:
        row.outputs += 1
        row.faults.append(f"{where}: not run end to end: {found.end_to_end}")
    return row


def check(seed: int) -> dict[str, Row] | None:
    """Form -> Row of the graph of that seed; None: it is no model."""
    drawn = draw(seed)
    if not is_model(drawn):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is quantized, a scale is a guess
        return {form: _row(drawn, form, quantized) for form, quantized in made(drawn)}


def _row(drawn: Drawn, form: str, quantized: Callable[[], ir.Model]) -> Row:
    where = f"seed {drawn.seed}, {form}"
    try:
        model = quantized()
    except OnnxqError as error:
        text = str(error).splitlines()[0]
        return Row(refused=1, faults=[f"{where}{REFUSED}{text}"])
    except Exception:  # any: a defect of onnxq
        return Row(tracebacks=1, faults=[f"{where}: {traceback.format_exc()}"])
    try:
        return compared(model, drawn, form)
    except Exception:  # likewise
        return Row(tracebacks=1, faults=[f"{where}: {traceback.format_exc()}"])


@dataclass
class Table:
    """Rows of many seeds.

    Attributes:
        rows: by form.
        drawn: graphs that are models, by kind of weights.
        not_drawn: graphs that are none.
        wide: graphs that are models, with steps of all families.
    """

    rows: dict[str, Row] = field(default_factory=lambda: {form: Row() for form in FORMS})
    drawn: Counter[Weights] = field(default_factory=Counter)
    not_drawn: int = 0
    wide: int = 0

    def add(self, seed: int) -> list[str]:
        """Adds a seed; what was found to be wrong."""
        rows = check(seed)
        if rows is None:
            self.not_drawn += 1
            return []
        self.drawn[draw(seed).kind] += 1
        self.wide += is_wide(seed)
        for form, row in rows.items():
            self.rows[form].add(row)
        return [fault for row in rows.values() for fault in row.faults]

    @property
    def is_good(self) -> bool:
        """Whether nothing differs, and everything was compared."""
        return not any(getattr(row, name) for row in self.rows.values() for name in BAD)

    def text(self) -> str:
        """Markdown."""
        names = ("form", *(name.replace("_", " ") for name in COUNTS))
        lines = [head(*names)]
        for form, row in self.rows.items():
            lines.append(line(form, *(f"{getattr(row, name):,}" for name in COUNTS)))
        kinds = ", ".join(f"{kind.value} {count}" for kind, count in self.drawn.most_common())
        counts = (
            f"{sum(self.drawn.values())} graphs, {self.wide} of them with steps of all families; "
            f"{self.not_drawn} not drawn. Weights: {kinds}."
        )
        return "\n".join([*lines, "", counts, *self._wrong(), *self._refusals()])

    def _faults(self) -> list[str]:
        return [fault for row in self.rows.values() for fault in row.faults]

    def _wrong(self) -> list[str]:
        """All that is wrong, a line each."""
        wrong = [fault.splitlines()[0] for fault in self._faults() if REFUSED not in fault]
        return ["", *(f"- {fault}" for fault in wrong)] if wrong else []

    def _refusals(self) -> list[str]:
        """A table of why models were refused; names and numbers of one model are left out."""
        words = [fault.split(REFUSED, 1)[1] for fault in self._faults() if REFUSED in fault]
        kinds = Counter(
            re.sub(r"\d+", "N", re.sub(r"'.*?'| \(.*|\. .*", "...", each)) for each in words
        )
        if not kinds:
            return []
        return ["", head("refused", "because")] + [
            line(count, reason[:MOST_WORDS].replace("|", "\\|"))
            for reason, count in kinds.most_common()
        ]


def page(table: Table, first: int, end: int) -> str:
    """Markdown of a run over the seeds `first` to `end` - 1."""
    intro = (
        f"`scripts/random_graphs`, seeds {first} to {end - 1}: {platform.machine()}, "
        f"{versions('onnxruntime', 'onnx', 'numpy')}. The script says what the columns are."
    )
    return f"# Random graphs\n\n{intro}\n\n{table.text()}"


def main() -> int:
    """Prints the table; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument("--count", type=int, default=COUNT, help="of graphs that are models")
    parser.add_argument("--verbose", action="store_true", help="say what is refused, too")
    parser.add_argument("--write", type=Path, help="the page")
    arguments = parser.parse_args()
    table, seed = Table(), arguments.first
    while sum(table.drawn.values()) < arguments.count:
        for fault in table.add(seed):
            if arguments.verbose or REFUSED not in fault:
                print(fault, file=sys.stderr, flush=True)
        seed += 1
        if seed % PRINT_EVERY == 0:
            print(f"seed {seed}", file=sys.stderr, flush=True)
    publish([page(table, arguments.first, seed)], arguments.write)
    return 0 if table.is_good else 1


if __name__ == "__main__":
    sys.exit(main())

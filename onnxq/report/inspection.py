"""An Inspection: the precision of each node of a float model, or what a quantized one is."""

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir
from rich.console import Console

from onnxq.checking.execution import execution, execution_in
from onnxq.checking.findings import Execution
from onnxq.checking.inventory import Inventory, StoredWeight, inventory
from onnxq.checking.summary import Summary, summarize_precisions
from onnxq.core.brief import size_text
from onnxq.core.saved import plain
from onnxq.dynamic.dynamic_decision import Objective, as_objective
from onnxq.errors import LimitError, ModelError, counted
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.io import load
from onnxq.graph.quantized import INPUTS_KEY, OUTPUTS_KEY, read_quantized_io
from onnxq.graph.saving import saved_bytes
from onnxq.graph.walk import tensor_names
from onnxq.language.decoder import Decoder
from onnxq.ort import runtime
from onnxq.ort.node_kinds import NodeKind, original_name
from onnxq.page.card import Table, card
from onnxq.qconfig import QConfigMapping
from onnxq.report import json_values
from onnxq.report.console import open_console, print_execution, print_inspection, print_left
from onnxq.report.detail import is_whole
from onnxq.report.tables import print_table, shortened
from onnxq.static.deciders import with_measurements
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.prepared import ModelSource, Prepared
from onnxq.static.rewrite import rewrite
from onnxq.static.statistics import Statistics
from onnxq.static.why import Said, chain_of
from onnxq.targets import Target
from onnxq.times import Costs

TARGET_KEY = "onnxq.target"
ANY_TARGET = "any"  # as weights in blocks have it
MAX_NAMED = 3  # weights, or inputs, named of one kind
MOST_FLOATS = 6  # op types in float, unless all are to be shown
MOST_TYPE = 48  # columns of a type whose sizes are expressions
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class InputOutput:
    """An input or output of a model."""

    kind: str
    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class QuantizedFile:
    """Description of a quantized model.

    Attributes:
        format: that onnxq wrote; empty: another tool did, or none is known.
        target: machine that onnxq wrote it for; None: not known.
        size_bytes: of the model in one file.
        io: inputs, then outputs.
        inventory: what is stored as integers.
        execution: what ONNX Runtime runs on this machine; None: it does not run the model.
        float_nodes: (name, op type) of nodes that it runs in float.
        problem: why it does not run the model; empty where it does.
        cache: that a decoder keeps of keys and values, in words; empty: it is none, or has none.
    """

    format: str
    target: str | None
    size_bytes: int
    io: tuple[InputOutput, ...]
    inventory: Inventory
    execution: Execution | None
    float_nodes: tuple[tuple[str, str], ...]
    problem: str
    cache: str = ""

    def __repr__(self) -> str:
        runs = self.execution
        run = "does not run" if runs is None else f"{sum(runs.integer_nodes.values())} in integers"
        return f"QuantizedFile({size_text(self.size_bytes)}, {self.inventory!r}, {run})"

    def _repr_html_(self) -> str:
        weights = tuple(
            (w.name, w.op_type, w.dtype, w.granularity, size_text(w.size_bytes))
            for w in self.inventory.weights
        )
        header = ("weight", "read by", "integers", "scales", "size")
        said = (self.problem,) if self.problem else ()
        return card(repr(self), said, (), (Table(header, weights),))

    def print(self) -> None:
        """Prints it on stdout, as `onnxq inspect` does."""
        print_quantized(open_console(), self)

    def to_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "format": self.format,
            "target": self.target,
            "size_bytes": self.size_bytes,
            "io": [dataclasses.asdict(each) for each in self.io],
            "inventory": dataclasses.asdict(self.inventory),
            "execution": plain(self.execution),
            "float_nodes": [{"name": n, "op_type": op} for n, op in self.float_nodes],
            "problem": self.problem,
            "cache": self.cache,
        }


def look_at(model: ir.Model) -> QuantizedFile | None:
    """Description of a model; None: nothing in it is quantized."""
    file_format = model.metadata_props.get(FORMAT_KEY, "")
    found = inventory(model)
    if not file_format and not found.is_quantized:
        return None
    runs: Execution | None = None
    floats: tuple[tuple[str, str], ...] = ()
    problem = ""
    try:
        optimized = runtime.optimized_graph(model)
        runs = execution_in(model, optimized)
        uses = runtime.integer_nodes(optimized)
        floats = tuple((original_name(u.name), u.op_type) for u in uses if u.kind is NodeKind.FLOAT)
    except (ModelError, LimitError) as error:  # files of other tools may be for other machines
        problem = str(error)
    target = model.metadata_props.get(TARGET_KEY)
    io = tuple(io_of(model))
    size, cache = saved_bytes(model), _cache_of(model)
    return QuantizedFile(file_format, target, size, io, found, runs, floats, problem, cache)


def _cache_of(model: ir.Model) -> str:
    """The cache of a decoder: "2 layers, 2 heads of 32 numbers, float32: 1 kB a token ..."."""
    try:
        decoder = Decoder.of(model)
        if not decoder.keys:
            return ""
        empty = next(x for name, x in decoder.empty(1).items() if name in decoder.keys)
        heads, head = decoder.cache
    except ModelError:
        return ""
    size_bytes = len(decoder.keys) * heads * head * empty.dtype.itemsize
    return (
        f"{decoder.layers} layers, {heads} heads of {head} numbers, {empty.dtype}: "
        f"{size_text(size_bytes)} a token of keys and values"
    )


def io_of(model: ir.Model) -> list[InputOutput]:
    """The inputs, then the outputs."""
    io = []
    for kind, values, key in (
        ("input", model.graph.inputs, INPUTS_KEY),
        ("output", model.graph.outputs, OUTPUTS_KEY),
    ):
        quantized = read_quantized_io(model, key)
        for value in values:
            name = str(value.name)
            shape = "" if value.shape is None else f" {value.shape}"
            meaning = str(quantized[name]) if name in quantized else ""
            io.append(InputOutput(kind, name, f"{value.dtype}{shape}".lower(), meaning))
    return io


def print_quantized(console: Console, file: QuantizedFile) -> None:
    """Prints who wrote it, what it reads, gives and stores, and what ONNX Runtime runs."""
    found = file.inventory
    if file.format:
        target = file.target or "an unknown target"
        target = "every target" if target == ANY_TARGET else target
        console.print(f"quantized by onnxq for {target}, format {file.format}")
    else:
        console.print(f"quantized; written by {found.producer or 'a program without a name'}")
    io = file.io if is_whole() else _gathered(file.io)
    width = max((len(x.type) for x in io), default=0) if is_whole() else MOST_TYPE
    rows = [(x.kind, x.name, shortened(x.type, width), x.meaning) for x in io]
    print_table(console, "", ("value", "name", "type", "numbers"), rows)
    on_integers = ", ".join(f"{op} {count}" for op, count in found.nodes_on_integers.items())
    console.print(f"nodes of the file on integers: {on_integers or 'none'}\n")
    if found.weights:
        _print_weights(console, found.weights)
    if found.activations:
        rows_of = [(qparams, str(count)) for qparams, count in found.activations.items()]
        print_table(console, "", ("activations become integers", "places"), rows_of, numbers=(1,))
    stored = [(t, str(n), size_text(size)) for t, (n, size) in found.stored.items()]
    print_table(console, "constants", ("type", "tensors", "size"), stored, numbers=(1, 2))
    if file.execution is None:
        console.print(f"ONNX Runtime does not run it here: {file.problem}")
    else:
        print_execution(console, file.execution)
        _print_floats(console, file.float_nodes)
    if file.cache:
        console.print(f"cache: {file.cache}")
    console.print(f"size: {size_text(file.size_bytes)}")


def _gathered(io: Sequence[InputOutput]) -> list[InputOutput]:
    """Gathers those whose names differ in a number alone: "past.*.key (32)"."""
    groups: dict[InputOutput, list[InputOutput]] = {}
    for each in io:
        groups.setdefault(replace(each, name=NUMBER.sub("*", each.name)), []).append(each)
    found: list[InputOutput] = []
    for group, members in groups.items():
        many = len(members) > MAX_NAMED
        found += [replace(group, name=f"{group.name} ({len(members)})")] if many else members
    return found


def _print_weights(console: Console, weights: tuple[StoredWeight, ...]) -> None:
    """A row for each kind; where all is asked for, one for each weight."""
    if is_whole():
        header = ("weight", "read by", "op", "integers", "shape", "scales", "size")
        rows = [
            (w.name, w.node, w.op_type, w.dtype, f"{list(w.shape)}", w.granularity, size)
            for w in weights
            for size in [size_text(w.size_bytes)]
        ]
        print_table(console, "weights that are integers", header, rows, numbers=(6,))
        return
    kinds: dict[tuple[str, str, str], list[StoredWeight]] = {}
    for w in weights:
        kinds.setdefault((w.op_type, w.dtype, w.granularity), []).append(w)
    ordered = sorted(kinds.items(), key=lambda item: -sum(w.size_bytes for w in item[1]))
    by_kind = [
        (*kind, str(len(those)), size_text(sum(w.size_bytes for w in those)))
        for kind, those in ordered
    ]
    columns = ("read by", "integers", "scales", "weights", "size")
    print_table(console, "weights that are integers", columns, by_kind, numbers=(3, 4))


def _print_floats(console: Console, nodes: tuple[tuple[str, str], ...]) -> None:
    """Nodes that stay in float, by operator and name."""
    by_op: dict[str, list[str]] = {}
    for name, op_type in nodes:
        by_op.setdefault(op_type, []).append(name or "(no name)")
    most = len(nodes) if is_whole() else 1
    counts = Counter({op_type: len(names) for op_type, names in by_op.items()})
    rows = [
        (op_type, str(count), counted(by_op[op_type], most))
        for op_type, count in counts.most_common()
    ]
    left = [] if is_whole() else rows[MOST_FLOATS:]
    if rows:
        kept = rows[: len(rows) - len(left)]
        print_table(console, "in float", ("op", "nodes", "which"), kept, numbers=(1,))
    print_left(console, {"op types": len(left)})


@dataclass(frozen=True)
class Inspection:
    """Inspection of a float model: the precision of every node, and why.

    Attributes:
        target: name of the machine.
        summary: of the nodes.
        notes: on the model and the configuration.
        tensors: names, for a QConfigMapping.
        node: the one whose chain was asked for; empty: none was.
        chain: what deciders said of it, in order.
        execution: what ONNX Runtime would run on this machine; None: no statistics were given.
    """

    target: str
    summary: Summary
    notes: tuple[str, ...]
    tensors: tuple[str, ...]
    execution: Execution | None = None
    node: str = ""
    chain: tuple[Said, ...] = ()

    def __repr__(self) -> str:
        precisions = ", ".join(f"{like} {count}" for like, count in self.summary.precisions.items())
        return f"Inspection({self.target}: {len(self.summary.nodes)} nodes: {precisions})"

    def _repr_html_(self) -> str:
        groups = tuple(
            (group.precision.value, str(len(group.nodes)), group.why.words)
            for group in self.summary.groups
        )
        return card(repr(self), self.notes, (), (Table(("precision", "nodes", "why"), groups),))

    def print_why(self, console: Console) -> None:
        """Prints the chain of the node that was asked for, and its outcome."""
        rows = [(said.decider, said.precision.value, said.reason.words) for said in self.chain]
        end = next(node for node in self.summary.nodes if node.name == self.node)
        rows.append(("outcome", end.precision.value, end.words))
        print_table(console, f"{end.op_type} {end.name}", ("decider", "precision", "why"), rows)

    def print(self) -> None:
        """Prints it on stdout, as `onnxq inspect` does."""
        self.print_on(open_console())

    def print_on(self, console: Console) -> None:
        """Prints it on a console."""
        print_inspection(console, self.summary, self.notes, self.target)
        if self.execution is not None:
            print_execution(console, self.execution)

    def to_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "target": self.target,
            "notes": list(self.notes),
            "tensors": list(self.tensors),
            **({} if self.execution is None else {"execution": plain(self.execution)}),
            **json_values.summary(self.summary),
            **({"why": plain(self.chain)} if self.node else {}),
        }


def inspect(
    model: ModelSource,
    *,
    qconfig: QConfigMapping | str | Path | None = None,
    target: str | Target | None = None,
    statistics: Statistics | None = None,
    costs: Costs | None = None,
    objective: Objective | str = Objective.SPEED,
    exclude: Collection[str] = (),
) -> Inspection | QuantizedFile:
    """Inspection of a float model, which needs no data; or of a quantized one, whoever wrote it.

    Args:
        model: path, ModelProto or onnx_ir.Model.
        qconfig: what to quantize and how, or the path of a YAML file that says it; None: onnxq's
            default.
        target: the machine that it would be for; None: `targets.get_default()`.
        statistics: of a calibration, which have a say in what is chosen; None: rules alone decide.
        costs: times of nodes, which have a say beside statistics; None: the target's own table.
        objective: "speed" or "size", as `quantize` takes it.
        exclude: names or globs of nodes that stay in float.
    Raises:
        ModelError: the model cannot be read, or is one that is not quantized.
        QConfigError: a name or option is not known.
        CalibrationError: statistics of another model.
    """
    loaded = load(model)
    found = look_at(loaded)
    if found is not None:
        return found
    return inspected(
        prepare(loaded, qconfig, target, costs=costs, exclude=exclude), statistics, objective
    )


def inspected(
    prepared: Prepared, statistics: Statistics | None, objective: Objective | str, node: str = ""
) -> Inspection:
    """Inspection of a Prepared, with the chain of a node where one is named; see `inspect`."""
    if node:
        decided = prepared
        if statistics is not None:
            decided, _ = with_measurements(prepared, statistics, as_objective(objective))
        found = inspected(prepared, statistics, objective)
        return replace(found, node=node, chain=chain_of(decided, node))
    tensors = tuple(tensor_names(prepared.model))
    name = prepared.target.name
    if statistics is None:
        dtypes = {name: group.dtype for group in prepared.groups for name in group.members}
        summary = summarize_precisions(
            prepared.model, prepared.decisions, prepared.precisions, dtypes
        )
        return Inspection(name, summary, tuple(prepared.notes), tensors)
    made = plan(prepared, statistics, as_objective(objective))
    summary = summarize_precisions(prepared.model, made.decisions, made.precisions, made.dtypes)
    runs = execution(rewrite(prepared, made))
    return Inspection(name, summary, tuple(made.notes), tensors, runs)

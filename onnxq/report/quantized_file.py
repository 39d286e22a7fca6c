"""Describes any quantized model: inputs and outputs, stored integers, what runs of it."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxq.checking.execution import execution_in
from onnxq.checking.inventory import inventory
from onnxq.core.brief import size_text
from onnxq.errors import LimitError, ModelError, counted
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.quantized import INPUTS_KEY, OUTPUTS_KEY, read_quantized_io
from onnxq.graph.saving import saved_bytes
from onnxq.language.decoder import Decoder
from onnxq.ort import runtime
from onnxq.ort.node_kinds import NodeKind, original_name
from onnxq.page.card import Table, card
from onnxq.report import json_values
from onnxq.report.console import open_console, print_execution
from onnxq.report.detail import is_whole
from onnxq.report.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from rich.console import Console

    from onnxq.checking.findings import Execution
    from onnxq.checking.inventory import Inventory, StoredWeight

TARGET_KEY = "onnxq.target"
ANY_TARGET = "any"  # as weights in blocks have it
MAX_NAMED = 3  # weights, or ends, named of one kind
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class End:
    """An input or output of a model.

    Attributes:
        kind: "input" or "output".
        name: of the value.
        type: and shape.
        meaning: numbers that its integers or pixels stand for; empty where it holds numbers.
    """

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
        ends: inputs, then outputs.
        inventory: what is stored as integers.
        execution: what ONNX Runtime runs on this machine; None: it does not run the model.
        float_nodes: (name, op type) of nodes that it runs in float.
        problem: why it does not run the model; empty where it does.
        cache: that a decoder keeps of keys and values, in words; empty: it is none, or has none.
    """

    format: str
    target: str | None
    size_bytes: int
    ends: tuple[End, ...]
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
        runs = self.execution
        return {
            "format": self.format,
            "target": self.target,
            "size_bytes": self.size_bytes,
            "ends": [dataclasses.asdict(end) for end in self.ends],
            "inventory": dataclasses.asdict(self.inventory),
            "execution": None if runs is None else json_values.execution(runs),
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
    ends = tuple(ends_of(model))
    size, cache = saved_bytes(model), _cache_of(model)
    return QuantizedFile(file_format, target, size, ends, found, runs, floats, problem, cache)


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


def ends_of(model: ir.Model) -> list[End]:
    """The inputs, then the outputs."""
    ends = []
    for kind, values, key in (
        ("input", model.graph.inputs, INPUTS_KEY),
        ("output", model.graph.outputs, OUTPUTS_KEY),
    ):
        quantized = read_quantized_io(model, key)
        for value in values:
            name = str(value.name)
            shape = "" if value.shape is None else f" {value.shape}"
            meaning = str(quantized[name]) if name in quantized else ""
            ends.append(End(kind, name, f"{value.dtype}{shape}".lower(), meaning))
    return ends


def print_quantized(console: Console, file: QuantizedFile) -> None:
    """Who wrote it, ends, weights by kind, activations, sizes, and what ONNX Runtime runs."""
    found = file.inventory
    if file.format:
        target = file.target or "an unknown target"
        target = "every target" if target == ANY_TARGET else target
        console.print(f"quantized by onnxq for {target}, format {file.format}")
    else:
        console.print(f"quantized; written by {found.producer or 'a program without a name'}")
    ends = file.ends if is_whole() else _gathered(file.ends)
    rows = [(end.kind, end.name, end.type, end.meaning) for end in ends]
    print_table(console, "", ("end", "name", "type", "numbers"), rows)
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


def _gathered(ends: Sequence[End]) -> list[End]:
    """The ends; those whose names differ in a number alone are one: "past.*.key (32)"."""
    groups: dict[End, list[End]] = {}
    for end in ends:
        groups.setdefault(replace(end, name=NUMBER.sub("*", end.name)), []).append(end)
    found: list[End] = []
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
        scales = w.granularity.partition(" (")[0]  # without the number of channels
        kinds.setdefault((w.op_type, w.dtype, scales), []).append(w)
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
    most = len(nodes) if is_whole() else MAX_NAMED
    counts = Counter({op_type: len(names) for op_type, names in by_op.items()})
    rows = [
        (op_type, str(count), counted(by_op[op_type], most))
        for op_type, count in counts.most_common()
    ]
    if rows:
        print_table(console, "in float", ("op", "nodes", "which"), rows, numbers=(1,))

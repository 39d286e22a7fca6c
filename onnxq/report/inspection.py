"""An Inspection: the precision of each node of a float model, or what a quantized one is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxq.checking.execution import execution
from onnxq.checking.summary import summarize_choices
from onnxq.dynamic.dynamic_decision import Objective, as_objective
from onnxq.graph.io import load
from onnxq.graph.walk import tensor_names
from onnxq.page.card import Table, card
from onnxq.report import json_values
from onnxq.report.console import open_console, print_execution, print_inspection
from onnxq.report.quantized_file import QuantizedFile, look_at
from onnxq.report.tables import print_table
from onnxq.static.deciders import with_evidence
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.static.why import chain_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rich.console import Console

    from onnxq.checking.findings import Execution
    from onnxq.checking.summary import Summary
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.prepared import ModelSource, Prepared
    from onnxq.static.statistics import Statistics
    from onnxq.static.why import Said
    from onnxq.targets import Target
    from onnxq.times import Costs


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
        runs = self.execution
        return {
            "target": self.target,
            "notes": list(self.notes),
            "tensors": list(self.tensors),
            **({} if runs is None else {"execution": json_values.execution(runs)}),
            **json_values.summary(self.summary),
            **({"why": [said.to_dict() for said in self.chain]} if self.node else {}),
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
            decided, _ = with_evidence(prepared, statistics, as_objective(objective))
        found = inspected(prepared, statistics, objective)
        return replace(found, node=node, chain=chain_of(decided, node))
    tensors = tuple(tensor_names(prepared.model))
    name = prepared.target.name
    if statistics is None:
        dtypes = {name: group.dtype for group in prepared.groups for name in group.members}
        summary = summarize_choices(prepared.model, prepared.decisions, prepared.choices, dtypes)
        return Inspection(name, summary, tuple(prepared.notes), tensors)
    made = plan(prepared, statistics, as_objective(objective))
    summary = summarize_choices(prepared.model, made.decisions, made.choices, made.dtypes)
    runs = execution(rewrite(prepared, made))
    return Inspection(name, summary, tuple(made.notes), tensors, runs)

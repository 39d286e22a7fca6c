"""Looks at a quantized model: what it takes and gives, and what ONNX Runtime runs of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.coded import INPUTS_KEY, OUTPUTS_KEY, read_coded
from onnxq.report import json_values
from onnxq.report.console import print_execution
from onnxq.report.tables import print_table

if TYPE_CHECKING:
    import onnx_ir as ir
    from rich.console import Console

    from onnxq.checking.findings import Execution

TARGET_KEY = "onnxq.target"


@dataclass(frozen=True, slots=True)
class End:
    """An input or output of a model.

    Attributes:
        kind: "input" or "output".
        name: of the value.
        type: and shape.
        meaning: numbers that its codes or pixels stand for; empty where it holds numbers.
    """

    kind: str
    name: str
    type: str
    meaning: str


def ends_of(model: ir.Model) -> list[End]:
    """The inputs, then the outputs.

    Raises:
        ModelError: its metadata were altered.
    """
    ends = []
    for kind, values, key in (
        ("input", model.graph.inputs, INPUTS_KEY),
        ("output", model.graph.outputs, OUTPUTS_KEY),
    ):
        coded = read_coded(model, key)
        for value in values:
            name = str(value.name)
            shape = "" if value.shape is None else f" {value.shape}"
            meaning = str(coded[name]) if name in coded else ""
            ends.append(End(kind, name, f"{value.dtype}{shape}".lower(), meaning))
    return ends


def print_quantized(console: Console, model: ir.Model, execution: Execution) -> None:
    """Format and target, ends, and what ONNX Runtime runs."""
    target = model.metadata_props.get(TARGET_KEY, "an unknown target")
    console.print(f"quantized by onnxq for {target}, format {model.metadata_props[FORMAT_KEY]}")
    rows = [(end.kind, end.name, end.type, end.meaning) for end in ends_of(model)]
    print_table(console, "", ("end", "name", "type", "numbers"), rows)
    print_execution(console, execution)


def quantized_values(model: ir.Model, execution: Execution) -> dict[str, object]:
    """The same as plain values."""
    return {
        "format": model.metadata_props[FORMAT_KEY],
        "target": model.metadata_props.get(TARGET_KEY),
        "ends": [dataclasses.asdict(end) for end in ends_of(model)],
        "execution": json_values.execution(execution),
    }

"""ONNX model of a program, whose values know the node of the program that they are the result of.

    program  -->  decomposed program  -->  ONNX nodes  -->  optimized ONNX nodes
      node    <-     from_node         <-  value's name  <-  the same name

torch's exporter records where the nodes of the decomposed program come from, names a value like the
node whose result it is, and keeps these names when it rewrites the model.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import onnx_ir as ir
import torch
from torch import fx
from torch.export import ExportedProgram

from onnxq.errors import UnsupportedError
from onnxq.graph.edit import all_values
from onnxq.graph.origins import origins_of, set_origins
from onnxq.graph.passes.equal_values import equal_values
from onnxq.graph.passes.no_ops import casts as casts_in
from onnxq.pytorch.exporting.exporter import DEFAULT_OPSET
from onnxq.pytorch.exporting.optimized import NAME_BEFORE, optimize, own_weights, tidy
from onnxq.pytorch.exporting.quiet import quiet_exporter
from onnxq.pytorch.exporting.translation import translation_table
from onnxq.pytorch.exporting.whole_layers import RECURRENT_TABLE
from onnxq.pytorch.programs.program import Program

_OF_SEQUENCE = "_split_"


def onnx_form(program: Program) -> ir.Model:
    """The program as a float ONNX model; graph.origins says what its values are the result of."""
    try:
        with quiet_exporter():
            made = torch.onnx.export(
                program.exported,
                dynamo=True,
                verbose=False,
                optimize=False,
                opset_version=DEFAULT_OPSET,
                input_names=list(program.bound.tensors),
                custom_translation_table=translation_table(DEFAULT_OPSET) | RECURRENT_TABLE,
            )
            assert made is not None, "torch.onnx.export(dynamo=True) returns a program"
            assert made.exported_program is not None, "it was exported by way of one"
            of_decomposed = origins(program.exported, made.exported_program)
            found = _found(made.model, of_decomposed)
            casts = [Cast.of(node) for node in casts_in(made.model)]
            optimize(made)
    except torch.onnx.OnnxExporterError as error:
        reason = " ".join(str(error.__cause__ or error).split())[:400]
        raise UnsupportedError(
            f"the program has no ONNX form: {reason}\nWhat to do: replace the operator in forward "
            f"by operators that have one.{_parametrized(program.exported)}"
        ) from error
    _hand_on(made.model, found, casts)
    for value in all_values(made.model.graph):
        set_origins(value, found.get(str(value.name), ()))
    _set_parts(made.model, of_decomposed, _parts(program.exported.graph))
    tidy(made.model)
    own_weights(made.model)
    return made.model


def _parametrized(program: ExportedProgram) -> str:
    """A sentence on weights that are computed of others, to end the message with."""
    parts = (name.partition(".parametrizations.") for name in program.state_dict)
    layers = dict.fromkeys(layer for layer, found, _ in parts if found)
    if not layers:
        return ""
    return (
        f" Weights of {', '.join(layers)} are parametrized: where the operator is part of that, "
        "torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight') ahead of prepare_qat "
        "leaves the weight as it is now."
    )


def _found(model: ir.Model, of_decomposed: Mapping[str, str]) -> dict[str, list[str]]:
    """Name of a value -> its origins, with those of values that are equal by what computes them."""
    alike = equal_values(model)
    found: dict[ir.Value, list[str]] = {}
    for value in all_values(model.graph):
        origin = of_decomposed.get(value.metadata_props.get(NAME_BEFORE, str(value.name)))
        known = found.setdefault(alike.get(value, value), [])
        known += [] if origin is None else [origin]
    return {str(v.name): found[alike.get(v, v)] for v in all_values(model.graph)}


class Cast(NamedTuple):
    """One node, by names that stay when the exporter's optimizer leaves it out.

    `to` is a type, or the name of a value that has it (CastLike).
    """

    read: str
    made: str
    to: int | str

    @classmethod
    def of(cls, node: ir.Node) -> Self:
        """The names of a Cast's or CastLike's values."""
        read, *like = (str(value.name) for value in node.inputs if value is not None)
        to = like[0] if like else node.attributes["to"].as_int()
        return cls(read, str(node.outputs[0].name), to)


def _hand_on(model: ir.Model, found: dict[str, list[str]], casts: Sequence[Cast]) -> None:
    """Gives the origins of a Cast that was left out to the value that had the type already.

    Types of all values are known once the model is optimized.
    """
    values = {str(value.name): value for value in all_values(model.graph)}
    for cast in reversed(casts):  # one that another one reads last
        value = values.get(cast.read)
        like = values.get(cast.to) if isinstance(cast.to, str) else None
        to = cast.to if like is None else like.dtype
        if value is not None and value.dtype == to and cast.made not in values:
            found[cast.read] = [*found[cast.read], *found[cast.made]]


def _set_parts(
    model: ir.Model, of_decomposed: Mapping[str, str], parts: Mapping[tuple[str | None, int], str]
) -> None:
    """Gives origins to the results of a node that took the place of a sequence and its readers.

    The exporter's optimizer names them `<sequence>_split_0`, `<sequence>_split_1` ...
    """
    for value in (v for node in model.graph for v in node.outputs if len(node.outputs) > 1):
        sequence, _, position = str(value.name).rpartition(_OF_SEQUENCE)
        if position.isdecimal() and not origins_of(value):
            part = parts.get((of_decomposed.get(sequence), int(position)))
            set_origins(value, [] if part is None else [part])


def origins(program: ExportedProgram, decomposed: ExportedProgram) -> dict[str, str]:
    """Node of a decomposed program -> node of the program whose result it gives.

    A node that became several is given by the last of them.
    """
    graph = program.graph_module.graph
    parts = _parts(graph)
    last: dict[str, str] = {}
    for node in decomposed.graph_module.graph.nodes:
        origin = node.name if node.op == "placeholder" else _origin(node, graph)
        if node.target is operator.getitem:
            whole, index = node.args
            origin = parts.get((_origin(whole, graph), index), origin)
        if origin is not None:
            last[origin] = node.name
    return {made: origin for origin, made in last.items()}


def _parts(graph: fx.Graph) -> Mapping[tuple[str | None, int], str]:
    """(node of several results, position) -> the node that takes that one."""
    return {
        (node.args[0].name, node.args[1]): node.name
        for node in graph.nodes
        if node.target is operator.getitem
    }


def _origin(node: fx.Node, graph: fx.Graph) -> str | None:
    """The node of the graph that a decomposed node comes from, as torch.export records it."""
    sources = list(node.meta.get("from_node") or ())
    while sources:
        source = sources.pop()
        if source.graph_id == id(graph):
            return str(source.name)
        sources.extend(source.from_node)
    return None

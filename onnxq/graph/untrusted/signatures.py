"""Nodes beside the schema of their operator: what they lack, or have of another type.

Rules and passes read the inputs and attributes that ONNX requires without asking. Operators that
onnx does not know pass: ONNX Runtime, or who registered them, knows more of these.
"""

import functools
from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from onnxq.errors import listed, nearest
from onnxq.graph.untrusted.problem import DAMAGED, Problem, label
from onnxq.graph.untrusted.scopes import scoped_nodes
from onnxq.graph.walk import bodies
from onnxq.operator.nodes import ONNX_DOMAINS

_Option = onnx.defs.OpSchema.FormalParameterOption


def check_signatures(model: ir.Model) -> Iterator[Problem]:
    """Finds a node without an input, output or attribute that its operator requires.

    Also an input or attribute that it does not have, and an attribute of another type.
    """
    for node, scope in scoped_nodes(model):
        yield from _attributes_hold(node)
        if node.op_identifier() in model.functions:
            continue
        names = ONNX_DOMAINS if node.domain in ONNX_DOMAINS else (node.domain,)
        version = next((scope.opsets[name] for name in names if name in scope.opsets), None)
        schema = None if version is None else schema_of(node.domain, node.op_type, version)
        if schema is None:
            continue
        where = f"node {label(node)}"
        suffix = f"opset {version} of {node.domain or 'ai.onnx'}"
        inputs = ["" if value is None else value.name or "?" for value in node.inputs]
        outputs = ["?" if value.name is None else value.name for value in node.outputs]
        yield from _missing(f"{where} has", "input", inputs, schema.inputs, suffix)
        there = ["?"] * len(outputs)  # one without a name is there, and nobody reads it
        yield from _missing(f"{where} has", "output", there, schema.outputs, suffix)
        yield from _surplus(node, "input", inputs, schema.max_input, suffix)
        yield from _surplus(node, "output", outputs, schema.max_output, suffix)
        yield from _attributes(node, schema, suffix)


_CONDITION = {"Loop": 1}
"""Operator -> results of its body that are none of the node's."""


def check_bodies(model: ir.Model) -> Iterator[Problem]:
    """Finds a body of If, Loop or Scan that gives fewer results than its node has."""
    for node, _ in scoped_nodes(model):
        if node.op_type not in {"If", "Loop", "Scan"} or node.domain not in ONNX_DOMAINS:
            continue
        wanted = len(node.outputs) + _CONDITION.get(node.op_type, 0)
        for body in bodies(node):
            if len(body.outputs) < wanted:
                yield Problem(
                    f"node {label(node)} wants {wanted} results of each body; graph "
                    f"'{body.name}' gives {len(body.outputs)}",
                    DAMAGED,
                )


@functools.cache
def schema_of(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    """The operator's schema in an opset; None where onnx does not know it, or not any more."""
    try:
        schema = onnx.defs.get_schema(op_type, version, "" if domain in ONNX_DOMAINS else domain)
    except (onnx.defs.SchemaError, TypeError):  # a version has 32 bits
        return None
    return None if schema.deprecated else schema


def _missing(
    has: str,
    what: str,
    given: Sequence[str],
    formal: Sequence[onnx.defs.OpSchema.FormalParameter],
    suffix: str,
) -> Iterator[Problem]:
    """Slots that must be connected and are not; those that are left out are named ""."""
    for slot, parameter in enumerate(formal):
        if parameter.option == _Option.Single and not any(given[slot : slot + 1]):
            yield Problem(
                f"{has} no {what} {slot}, '{parameter.name}', which it needs in {suffix}",
                f"Give it that {what}.",
            )
        if parameter.option == _Option.Variadic and len(given) < slot + parameter.min_arity:
            wanted = slot + parameter.min_arity
            yield Problem(
                f"{has} {len(given)} {what}s; it needs {wanted} in {suffix}",
                f"Give it more {what}s.",
            )


def _surplus(
    node: ir.Node, what: str, given: Sequence[str], most: int, suffix: str
) -> Iterator[Problem]:
    for slot, name in enumerate(given[most:], most):
        if name and most:  # ONNX Runtime does not look at those of an operator that takes none
            has = f"{node.op_type} has {most} {what}{'' if most == 1 else 's'}"
            yield Problem(
                f"node {label(node)} has {what} '{name}' in slot {slot}; {has} in {suffix}",
                "Take it out.",
            )


def _attributes(node: ir.Node, schema: onnx.defs.OpSchema, suffix: str) -> Iterator[Problem]:
    where = f"node {label(node)}"
    for name, wanted in schema.attributes.items():
        if wanted.required and name not in node.attributes:
            yield Problem(
                f"{where} has no attribute '{name}', which it needs in {suffix}", "Add it."
            )
    for name, attribute in node.attributes.items():
        known = schema.attributes.get(name)
        if known is None:
            all_names = listed(sorted(schema.attributes)) or "none"
            yield Problem(
                f"{where} has an attribute '{name}', which {node.op_type} does not have in "
                f"{suffix}; it has: {all_names}",
                nearest(name, schema.attributes).strip() or "Take it out.",
            )
        elif attribute.type != (wanted_type := ir.AttributeType[str(known.type).split(".")[-1]]):
            kinds = f"{attribute.type.name}; {suffix} wants {wanted_type.name}"
            yield Problem(f"{where}: attribute '{name}' is of type {kinds}", DAMAGED)
        elif isinstance(attribute.value, bytes):
            yield Problem(f"{where}: attribute '{name}' is no UTF-8 text", DAMAGED)


def _attributes_hold(node: ir.Node) -> Iterator[Problem]:
    """Attributes that say nothing, of whatever operator."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.UNDEFINED or attribute.value is None or not name:
            yield Problem(f"node {label(node)}: attribute '{name}' has no value", DAMAGED)

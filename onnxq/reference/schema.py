"""Nodes beside the schema of their operator: inputs, outputs and attributes that it does not have.

Kernels read the inputs and attributes that they know. One that is misspelt would be ignored in
silence; ONNX Runtime refuses such a node when it loads the model.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnxq.errors import ModelError, listed, nearest
from onnxq.operator.nodes import ONNX_DOMAINS
from onnxq.ort import runtime


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of an operator: how many inputs and outputs, and which attributes.

    Attributes:
        required: attributes that every node has; ONNX Runtime does not say it of its own operators.
        fewest: inputs that every node has; ONNX's own are asked for in
            `graph.untrusted.signatures`.
    """

    inputs: int
    outputs: int
    attributes: frozenset[str]
    required: frozenset[str] = frozenset()
    fewest: int = 0


def check_nodes(model: ir.Model) -> None:
    """Passes a model whose nodes all keep to the schemas, in bodies and functions too."""
    functions = [node for function in model.functions.values() for node in function.all_nodes()]
    for node in (*model.graph.all_nodes(), *functions):
        check_node(
            (node.domain, node.op_type),
            node.name or next((str(y.name) for y in node.outputs if y.name), ""),
            ["" if x is None else str(x.name) for x in node.inputs],
            [str(y.name or "") for y in node.outputs],
            node.attributes,
            model.opset_imports,
        )


def check_proto(node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
    """Checks one node, as `check_nodes`."""
    names = [attribute.name for attribute in node.attribute]
    label = node.name or next(iter(node.output), "")
    kind = (node.domain, node.op_type)
    check_node(kind, label, node.input, node.output, names, opsets)


def check_node(
    kind: tuple[str, str],
    label: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Collection[str],
    opsets: Mapping[str, int],
) -> None:
    """Checks a node in parts, as `check_nodes`; absent inputs and outputs are ""."""
    domain, op_type = kind
    names = ONNX_DOMAINS if domain in ONNX_DOMAINS else (domain,)
    version = next((opsets[name] for name in names if name in opsets), 1)
    signature = signature_of(domain, op_type, version)
    if signature is None:  # an operator of the user's own, say
        return
    where = f"node {op_type} '{label}'"
    for what, given, most in (
        ("input", inputs, signature.inputs),
        ("output", outputs, signature.outputs),
    ):
        surplus = [name for name in given[most:] if name]
        if surplus:
            raise ModelError(
                f"{where} has {what} '{surplus[0]}' in slot {list(given).index(surplus[0], most)}; "
                f"{op_type} has {most} {what}{'' if most == 1 else 's'} in opset {version} of "
                f"{domain or 'ai.onnx'}. Take it out."
            )
    for name in attributes:
        if name not in signature.attributes:
            known = listed(sorted(signature.attributes)) or "none"
            raise ModelError(
                f"{where} has an attribute '{name}', which {op_type} does not have in opset "
                f"{version} of {domain or 'ai.onnx'}; it has: {known}."
                + nearest(name, signature.attributes)
            )
    if absent := sorted(signature.required.difference(attributes)):
        raise ModelError(
            f"{where} has no attribute '{absent[0]}', which {op_type} requires in opset {version} "
            f"of {domain or 'ai.onnx'}. Add it."
        )
    if len(inputs) < signature.fewest:
        raise ModelError(
            f"{where} has {len(inputs)} inputs; it needs {signature.fewest}. Give it the others."
        )


@functools.cache
def signature_of(domain: str, op_type: str, version: int) -> Signature | None:
    """The operator's, as ONNX has it, else as ONNX Runtime has it; None: neither knows it."""
    try:
        schema = onnx.defs.get_schema(op_type, version, "" if domain in ONNX_DOMAINS else domain)
    except (onnx.defs.SchemaError, TypeError):  # a version has 32 bits
        return _of_onnx_runtime().get(("" if domain in ONNX_DOMAINS else domain, op_type))
    required = frozenset(name for name, of in schema.attributes.items() if of.required)
    return Signature(schema.max_input, schema.max_output, frozenset(schema.attributes), required)


def check_call(domain: str, op_type: str, inputs: int, attributes: Collection[str]) -> None:
    """Passes inputs and attributes of a kernel that some version of its operator has."""
    signature = _of_any_version(domain, op_type)
    if signature is None:
        return
    if inputs > signature.inputs:
        raise ModelError(f"{inputs} inputs for {op_type}, which has {signature.inputs} at most.")
    for name in attributes:
        if name not in signature.attributes:
            known = listed(sorted(signature.attributes)) or "none"
            raise ModelError(
                f"{op_type} has no attribute '{name}'; it has: {known}."
                + nearest(name, signature.attributes)
            )


@functools.cache
def _of_any_version(domain: str, op_type: str) -> Signature | None:
    """Signature that the versions of an operator have between them."""
    versions = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if (schema.domain, schema.name) == (domain, op_type)
    }
    found = [signature_of(domain, op_type, version) for version in versions or {1}]
    known = [signature for signature in found if signature is not None]
    if not known:
        return None
    return Signature(
        max(signature.inputs for signature in known),
        max(signature.outputs for signature in known),
        frozenset().union(*(signature.attributes for signature in known)),
    )


@functools.cache
def _of_onnx_runtime() -> Mapping[tuple[str, str], Signature]:
    """(domain, op_type) -> the newest version, of operators that ONNX does not define."""
    return {
        (domain, op_type): Signature(most, outputs, attributes, fewest=fewest)
        for domain, op_type, (fewest, most), outputs, attributes in runtime.signatures()
    }

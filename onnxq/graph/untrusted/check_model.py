"""The one list of checks that every model passes."""

from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.internal.containers import RepeatedScalarFieldContainer

from onnxq.dtypes import BYTE_BITS
from onnxq.errors import ModelError
from onnxq.graph.untrusted.external_data import check_external_data
from onnxq.graph.untrusted.order import check_depth, check_order
from onnxq.graph.untrusted.problem import DAMAGED, Problem, label
from onnxq.graph.untrusted.ranks import check_ranks
from onnxq.graph.untrusted.scopes import Scope, all_tensors, scoped_nodes, scopes
from onnxq.graph.untrusted.signatures import check_bodies, check_signatures
from onnxq.operator.nodes import ONNX_DOMAINS

# --- Texts: UTF-8, all of them; protobuf reads others as bytes, and writes none of them


_TEXT_FIELDS = (
    "name", "domain", "op_type", "overload", "doc_string", "producer_name", "producer_version",
)  # fmt: skip


def check_texts(model: ir.Model) -> Iterator[Problem]:
    """Finds a name, a domain, a doc string ... that is no text."""
    for what, text in _texts(model):
        if isinstance(text, bytes):
            yield Problem(f"{what} is no UTF-8 text: {text!r}")


def _texts(model: ir.Model) -> Iterator[tuple[str, object]]:
    for thing in _things(model):
        kind = type(thing).__name__.lower()
        for field in _TEXT_FIELDS:
            yield f"{field} of a {kind}", getattr(thing, field, None)
        for key, text in getattr(thing, "metadata_props", {}).items():
            yield f"a key in the metadata of a {kind}", key
            yield f"a text in the metadata of a {kind}", text
        if isinstance(thing, ir.Value):
            for size in thing.shape or ():
                yield f"a size of '{thing.name}'", size if isinstance(size, int) else size.value
    for scope in scopes(model):
        for domain in scope.opsets:
            yield "the domain of an opset", domain


def _things(model: ir.Model) -> Iterator[object]:
    """Whatever has a name."""
    yield model
    for scope in scopes(model):
        yield scope.graph
        yield from scope.graph.inputs
        yield from scope.graph.outputs
        if isinstance(scope.graph, ir.Graph):
            yield from scope.graph.initializers.values()
        for node in scope.graph:
            yield node
            yield from node.attributes.values()
            yield from node.outputs
            yield from (x for x in node.inputs if x is not None and x.producer() is None)
    for _, tensor in all_tensors(model):
        yield tensor


# --- Values: each has a name where it needs one, and somebody who makes it, once


def check_origins(model: ir.Model) -> Iterator[Problem]:
    """Finds a value that a node reads, or a graph gives, and that nobody around it makes."""
    for scope in scopes(model):
        visible = set(_around(scope))
        for node in scope.graph:
            for value in node.inputs:
                if value is not None and _owner(value) not in visible:
                    yield Problem(
                        f"input '{value.name}' of node {label(node)} is neither a graph input, nor "
                        "an initializer, nor the output of a node around it",
                        "The model is invalid; export it again.",
                    )
        for value in scope.graph.outputs:
            if _owner(value) != id(_plain(scope)):
                yield Problem(
                    f"output '{value.name}' of graph '{scope.graph.name}' is made by no node of it",
                    "Make it an output of one, of an Identity, say.",
                )


def check_ends(model: ir.Model) -> Iterator[Problem]:
    """Finds an input or output without a name, one that is there twice, an input without a type."""
    for scope in scopes(model):
        graph = scope.graph
        inputs, outputs = ([value.name for value in ends] for ends in (graph.inputs, graph.outputs))
        for what, names in (("input", inputs), ("output", outputs)):
            if not all(names):
                place = next(i for i, name in enumerate(names) if not name)
                yield Problem(f"{what} {place} of graph '{graph.name}' has no name")
        twice = [name for name, count in Counter(inputs).items() if count > 1]
        if twice:  # an output may be given twice
            yield Problem(f"graph '{graph.name}' has two inputs '{twice[0]}'")
    for value in model.graph.inputs:
        if value.dtype in (None, ir.DataType.UNDEFINED) and not value.is_initializer():
            yield Problem(f"input '{value.name}' of the model has no type")


def check_names_are_unique(model: ir.Model) -> Iterator[Problem]:
    """Finds a name that two values of one graph have: who reads it could mean either."""
    for scope in scopes(model):
        owners: dict[str, ir.Value] = {}
        graph = scope.graph
        held = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        made = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *held, *made):
            if value.name and owners.setdefault(value.name, value) is not value:
                yield Problem(
                    f"two values of graph '{graph.name}' are named '{value.name}'", DAMAGED
                )


def _plain(scope: Scope) -> ir.Graph:
    """The graph itself, also of a function."""
    return scope.graph.graph if isinstance(scope.graph, ir.Function) else scope.graph


def _around(scope: Scope | None) -> Iterator[int]:
    while scope is not None:
        yield id(_plain(scope))
        scope = scope.outer


def _owner(value: ir.Value) -> int | None:
    """The graph that makes a value, as an input, an initializer or the result of a node."""
    producer = value.producer()
    if producer is None and not (value.is_graph_input() or value.is_initializer()):
        return None
    graph = value.graph if producer is None else producer.graph
    if isinstance(graph, ir.Function):
        graph = graph.graph
    return None if graph is None else id(graph)


# --- Opset of the model: one that onnxq and ONNX Runtime know


OLDEST_OPSET = 7  # ONNX Runtime guarantees nothing below
NEWEST_OPSET = 26  # the last that ONNX Runtime 1.31 calls released


def check_opset(model: ir.Model) -> Iterator[Problem]:
    """Finds an opset of ai.onnx that is missing, too old or too new."""
    opset = next((model.opset_imports[d] for d in ONNX_DOMAINS if d in model.opset_imports), None)
    supported = f"supported are {OLDEST_OPSET} to {NEWEST_OPSET}"
    if opset is None:
        yield _missing(model, supported)
    elif opset < OLDEST_OPSET:
        yield Problem(
            f"opset {opset} of domain ai.onnx is too old; {supported}",
            "Export the model again, or convert it with onnx.version_converter.",
        )
    elif opset > NEWEST_OPSET:
        yield Problem(
            f"opset {opset} of domain ai.onnx is too new; {supported}",
            f"Export the model with opset_version={NEWEST_OPSET} or lower.",
        )


def _missing(model: ir.Model, supported: str) -> Problem:
    if any(node.domain in ONNX_DOMAINS for node in model.graph):
        return Problem(f"no opset of domain ai.onnx is imported ({supported})", DAMAGED)
    domains = ", ".join(f"'{domain}'" for domain in model.opset_imports) or "none"
    return Problem(
        f"it imports no opset of domain ai.onnx ({supported}), only of {domains}",
        "onnxq quantizes operators of ai.onnx, and there are none: leave this model as it is.",
    )


# --- Functions: none calls itself, and inlined they are no more than can be read
#
# Every stage reads a model whose functions are inlined. Two calls of a function that itself calls
# another twice, and so on, are a small file and 2^n nodes.


MAX_NODES = 1_000_000
"""Nodes of a model, functions inlined; ten times those of the largest that exporters write."""


def check_functions(model: ir.Model) -> Iterator[Problem]:
    """Finds functions that call each other in a circle, or that are too much when inlined."""
    if not model.functions:
        return
    calls = _calls(model)
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        domain, name, _ = error.args[1][0]
        yield Problem(f"function '{domain}.{name}' calls itself, or one that does")
        return
    sizes: dict[ir.OperatorIdentifier | None, int] = {}
    for caller in order:  # who is called comes first; an operator is one node
        called = calls.get(caller)
        sizes[caller] = 1 if called is None else sum(sizes[one] * n for one, n in called.items())
    if sizes[None] > MAX_NODES:
        yield Problem(
            f"with its functions inlined the model has {sizes[None]:,} nodes; onnxq reads "
            f"{MAX_NODES:,}",
            "Export the model without functions.",
        )


def _calls(model: ir.Model) -> dict[ir.OperatorIdentifier | None, Counter[ir.OperatorIdentifier]]:
    """Caller (None: the main graph) -> how often it calls which function or operator."""
    owners = {id(function.graph): name for name, function in model.functions.items()}
    calls: dict[ir.OperatorIdentifier | None, Counter[ir.OperatorIdentifier]] = {
        name: Counter() for name in (None, *model.functions)
    }
    for node, scope in scoped_nodes(model):
        while scope.outer is not None:
            scope = scope.outer
        caller = owners.get(id(getattr(scope.graph, "graph", scope.graph)))
        calls[caller][node.op_identifier()] += 1
    return calls


# --- Tensors: a type that is known, sizes that are none below zero, and as much data as both
#     want


_T = ir.DataType
_TYPES = frozenset(_T)
_FIELDS = {
    "int32_data": None,  # every other type
    "int64_data": (_T.INT64,),
    "uint64_data": (_T.UINT64, _T.UINT32),
    "float_data": (_T.FLOAT, _T.COMPLEX64),
    "double_data": (_T.DOUBLE, _T.COMPLEX128),
}
"""Field of a TensorProto -> types whose numbers it holds, in the order in which onnx_ir asks."""
_PARTS = {_T.COMPLEX64: 2, _T.COMPLEX128: 2}
"""Type -> numbers of an element."""
_FLOAT6 = (_T.FLOAT6E2M3, _T.FLOAT6E3M2)  # unpacked where they are not raw


def check_tensors(model: ir.Model) -> Iterator[Problem]:
    """Finds a constant whose data do not fit its type and sizes; data themselves are not read."""
    for name, tensor in all_tensors(model):
        problem = _of_tensor(name, tensor)
        if problem is not None:
            yield problem


def check_initializers_have_data(model: ir.Model) -> Iterator[Problem]:
    """Finds an initializer without a tensor: only code can make one."""
    for scope in scopes(model):
        if not isinstance(scope.graph, ir.Graph):
            continue
        for name, value in scope.graph.initializers.items():
            if value.const_value is None:
                yield Problem(f"initializer '{name}' has no tensor", "Set its const_value.")


def _of_tensor(name: str, tensor: ir.TensorProtocol) -> Problem | None:
    if isinstance(tensor, ir.TensorProtoTensor) and tensor.raw.data_type not in _TYPES:
        return Problem(f"tensor '{name}' is of type {tensor.raw.data_type}, which ONNX has not")
    if tensor.dtype == ir.DataType.UNDEFINED:
        return Problem(f"tensor '{name}' has no type")
    shape = tuple(tensor.shape.numpy())
    if any(n < 0 for n in shape):
        return Problem(f"tensor '{name}' has a size below zero: {shape}")
    if isinstance(tensor, ir.StringTensor):
        what = f"tensor '{name}' of type STRING and shape {shape}"
        if not all(map(_is_text, np.asarray(tensor.raw, object).reshape(-1))):
            return Problem(f"{what} has a text that is no UTF-8")
        return _count(what, "texts", np.size(tensor.raw), tensor.size)
    if not isinstance(tensor, ir.TensorProtoTensor):
        return None
    return _of_proto(name, tensor.raw, tensor.dtype, tensor.size)


def _of_proto(name: str, proto: onnx.TensorProto, dtype: ir.DataType, size: int) -> Problem | None:
    what = f"tensor '{name}' of type {dtype.name} and shape {tuple(proto.dims)}"
    if dtype == ir.DataType.STRING:
        return _count(what, "texts in string_data", len(proto.string_data), size)
    if proto.HasField("raw_data"):
        return _count(what, "bytes", len(proto.raw_data), -(-size * dtype.bitwidth // BYTE_BITS))
    own = next((f for f, types in _FIELDS.items() if types and dtype in types), "int32_data")
    for field in _FIELDS:
        held: RepeatedScalarFieldContainer[int] = getattr(proto, field)
        if field != own and len(held):  # onnx and onnx_ir read other fields first
            return Problem(f"{what} has numbers in {field}, where its type has none", DAMAGED)
    packed = 1
    if dtype.bitwidth < BYTE_BITS and dtype not in _FLOAT6:
        packed = BYTE_BITS // dtype.bitwidth
    wanted = -(-size * _PARTS.get(dtype, 1) // packed)
    return _count(what, f"numbers in {own}", len(getattr(proto, own)), wanted)


def _is_text(text: object) -> bool:
    try:
        return not isinstance(text, bytes) or bool(text.decode()) or not text
    except UnicodeDecodeError:
        return False


def _count(what: str, unit: str, got: int, wanted: int) -> Problem | None:
    return None if got == wanted else Problem(f"{what} has {got} {unit}; it wants {wanted}")


# --- The one list of checks that every model passes


CHECKS: tuple[Callable[[ir.Model], Iterator[Problem]], ...] = (
    check_depth,  # first: what follows may walk into bodies
    check_texts,
    check_opset,
    check_tensors,
    check_initializers_have_data,
    check_external_data,  # behind check_tensors, which knows that sizes are none below zero
    check_ends,
    check_names_are_unique,
    check_origins,
    check_order,
    check_functions,
    check_signatures,
    check_bodies,
    check_ranks,
)
"""Each yields the problems of one kind; the first of all is told."""


def check_model(model: ir.Model, where: str) -> None:
    """Passes a model that every stage can read.

    Args:
        model: as onnx_ir reads it, or as code made it; it is not changed.
        where: the model, to begin the message with: its path, or "the model".
    Raises:
        ModelError: names node or tensor, what is wrong with it, and what to do.
    """
    for check in CHECKS:
        refuse(check(model), where)


def refuse(problems: Iterator[Problem], where: str) -> None:
    """Raises ModelError with the first problem, if there is one."""
    problem = next(problems, None)
    if problem is not None:
        raise ModelError(f"{where}: {problem}")

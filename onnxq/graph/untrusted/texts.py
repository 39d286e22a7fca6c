"""Texts: UTF-8, all of them; protobuf reads others as bytes, and writes none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.untrusted.problem import Problem
from onnxq.graph.untrusted.scopes import all_tensors, scopes

if TYPE_CHECKING:
    from collections.abc import Iterator

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

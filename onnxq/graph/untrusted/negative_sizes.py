"""Sizes below zero, which are dynamic.

Older exporters write -1 for an axis of any size. ONNX Runtime reads it so, and so does whatever
stands behind the door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.untrusted.scopes import scopes

if TYPE_CHECKING:
    from collections.abc import Iterator


def without_negative_sizes(model: ir.Model) -> ir.Model:
    """The model where no declared size is below zero; else a copy, these sizes dynamic."""
    if not any(_is_negative(value) for value in _values(model)):
        return model
    copy = model.clone()
    make_negative_sizes_dynamic(copy)
    return copy


def make_negative_sizes_dynamic(model: ir.Model) -> None:
    """Declares each size below zero as not known, in place."""
    for value in _values(model):
        if value.shape is not None and _is_negative(value):
            sizes = [None if isinstance(n, int) and n < 0 else n for n in value.shape]
            value.shape = ir.Shape(sizes)


def _is_negative(value: ir.Value) -> bool:
    return value.shape is not None and any(isinstance(n, int) and n < 0 for n in value.shape)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Values that declare a shape of their own: no initializer, whose tensor has one."""
    for scope in scopes(model):
        yield from scope.graph.inputs
        yield from scope.graph.outputs
        for node in scope.graph:
            yield from node.outputs

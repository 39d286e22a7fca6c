"""Depth of bodies in bodies, over which later walks recurse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.untrusted.problem import Problem
from onnxq.graph.untrusted.scopes import scopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

MAX_DEPTH = 30
"""Bodies inside bodies. Protobuf, hence ONNX Runtime, reads 100 messages inside each other, and a
body takes three; onnx_ir copies bodies by recursion, in some 8 of Python's 1,000 frames each."""


def check_depth(model: ir.Model) -> Iterator[Problem]:
    """Finds a body below more than MAX_DEPTH others."""
    for scope in scopes(model):
        if scope.depth > MAX_DEPTH:
            yield Problem(
                f"graph '{scope.graph.name}' lies inside {scope.depth} nodes (If, Loop, Scan ...); "
                f"onnxq reads {MAX_DEPTH}",
                "Join the conditions, or leave the inner ones to a model of their own.",
            )
            return

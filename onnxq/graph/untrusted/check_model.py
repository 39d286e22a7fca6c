"""The one list of checks that every model passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import ModelError
from onnxq.graph.untrusted.data import check_initializers_have_data, check_tensors
from onnxq.graph.untrusted.depth import check_depth
from onnxq.graph.untrusted.external_data import check_external_data
from onnxq.graph.untrusted.inlining import check_functions
from onnxq.graph.untrusted.opsets import check_opset
from onnxq.graph.untrusted.order import check_order
from onnxq.graph.untrusted.signatures import check_signatures
from onnxq.graph.untrusted.texts import check_texts
from onnxq.graph.untrusted.values import check_ends, check_names_are_unique, check_origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx_ir as ir

    from onnxq.graph.untrusted.problem import Problem

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

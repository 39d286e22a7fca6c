"""Definition of an operator: the class, or the decorated formula, that an author wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.operator import IntegerOperator, Operator


def definition(operator: Operator | IntegerOperator) -> object:
    """The class or formula; its docstring has the equation."""
    return getattr(operator, "formula", type(operator))


def module(operator: Operator | IntegerOperator) -> str:
    """Name of the module that defines it."""
    return str(definition(operator).__module__)

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq import operator
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    Float,
    Form,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Plain(Operator):
    """Has a rule and nothing else."""

    op_type = "Plain"
    domain = "tests"

    def rule(self, node: ir.Node) -> Rule | Float:
        return Float(f"{node.op_type} is an example")

    def cases(self) -> Iterable[Case]:
        return ()


class Whole(Plain):
    """Has everything."""

    op_type = "Whole"

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        return [tape.op(node.op_type, inputs)] * len(plan.outputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        assert not attributes
        return tuple(x for x in inputs[: len(plan.outputs)] if x is not None)


def test_what_an_operator_lacks_it_says() -> None:
    assert (Plain.has_lowering(), Plain.has_kernel()) == (False, False)
    assert (Whole.has_lowering(), Whole.has_kernel()) == (True, True)
    plan = NodePlan((), ())
    with pytest.raises(NotImplementedError, match="Plain"):
        Plain().lower(Tape(), ir.node("Plain", []), plan, [])
    with pytest.raises(NotImplementedError, match="Plain has no reference kernel"):
        Plain().kernel([], plan, {})


def test_an_operator_without_a_rule_cannot_be_made() -> None:
    class Bare(Operator):
        op_type = "Bare"

    with pytest.raises(TypeError, match="abstract"):
        Bare()  # type: ignore[abstract]  # the point


def test_registering_returns_the_class_and_refuses_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "registry", {})
    assert register(Plain) is Plain
    assert isinstance(operator.registry["tests", "Plain"], Plain)
    with pytest.raises(ValueError, match="registered twice"):
        register(Plain)


def test_the_least_rule_is_one_activation_and_one_result() -> None:
    rule = Rule(Role.ELEMENTWISE)
    assert (rule.activations, rule.outputs, rule.form) == ((0,), (0,), Form.QDQ)
    assert rule == Rule(Role.ELEMENTWISE)
    assert hash(rule) == hash(Rule(Role.ELEMENTWISE))

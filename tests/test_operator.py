from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    NodePlan,
    OpCategory,
    Operator,
    OperatorLimit,
    Rule,
    Site,
    contract,
    register,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Plain(Operator):
    """Has a rule and nothing else."""

    op_type = "Plain"
    domain = "tests"

    def rule(self, node: ir.Node) -> Rule | Float:
        return Float(OperatorLimit(f"{node.op_type} is an example"))

    def cases(self) -> Iterable[Case]:
        return ()


class Whole(Plain):
    """Has everything."""

    op_type = "Whole"

    def lower(self, site: Site) -> Sequence[ir.Value]:
        return site.float_node(site.inputs)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        return (call.integers(0),)


def test_what_an_operator_lacks_it_says() -> None:
    assert (Plain.has_lowering(), Plain.has_kernel()) == (False, False)
    assert (Whole.has_lowering(), Whole.has_kernel()) == (True, True)
    plan = NodePlan((), ())
    with pytest.raises(NotImplementedError, match="Plain"):
        Plain().lower(Site(Tape(), ir.node("Plain", []), [], plan))
    with pytest.raises(NotImplementedError, match="Plain has no reference kernel"):
        Plain().kernel(Call(Plain().op_type, [], plan))


def test_an_operator_without_a_rule_cannot_be_made() -> None:
    class Bare(Operator):
        op_type = "Bare"

    with pytest.raises(TypeError, match="abstract"):
        Bare()  # type: ignore[abstract]  # the point


def test_registering_returns_the_class_and_refuses_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contract, "registry", {})
    assert register(Plain) is Plain
    assert isinstance(contract.registry["tests", "Plain"], Plain)
    with pytest.raises(ValueError, match="registered twice"):
        register(Plain)


def test_the_least_rule_is_one_activation_and_one_result() -> None:
    rule = Rule(OpCategory.ELEMENTWISE)
    assert (rule.activations, rule.outputs, rule.is_fused) == ((0,), (0,), True)
    assert rule == Rule(OpCategory.ELEMENTWISE)
    assert hash(rule) == hash(Rule(OpCategory.ELEMENTWISE))

"""The contract of an operator: what an author writes, what it is given, what a plan says of it.

rule           Rule, DynamicRule, Float: how a node is quantized; Case: an example of it
node_plan      NodePlan, DynamicNodePlan: the qparams of one node
call           Call: what a kernel computes with
integer_call   IntegerCall: the same, for kernels of operators on codes
site           Site, DynamicSite: where a lowering writes its nodes
contract       Operator, IntegerOperator, and the registers of both
"""

from __future__ import annotations

from onnxq.operator.call import Array, AttributeValue, Call, NodeCall
from onnxq.operator.contract import (
    IntegerOperator,
    Operator,
    enter,
    integer_registry,
    register,
    register_integer,
    registry,
)
from onnxq.operator.integer_call import IntegerCall
from onnxq.operator.node_plan import DynamicForm, DynamicNodePlan, NodePlan
from onnxq.operator.rule import (
    Case,
    DynamicRule,
    DynamicWeight,
    Float,
    Form,
    Role,
    Rule,
    WeightSlot,
)
from onnxq.operator.site import DynamicSite, NodeSite, Site

__all__ = [
    "Array",
    "AttributeValue",
    "Call",
    "Case",
    "DynamicForm",
    "DynamicNodePlan",
    "DynamicRule",
    "DynamicSite",
    "DynamicWeight",
    "Float",
    "Form",
    "IntegerCall",
    "IntegerOperator",
    "NodeCall",
    "NodePlan",
    "NodeSite",
    "Operator",
    "Role",
    "Rule",
    "Site",
    "WeightSlot",
    "enter",
    "integer_registry",
    "register",
    "register_integer",
    "registry",
]

"""The contract of an operator: what an author writes, what it is given, what a plan says of it.

    rule           Rule, DynamicRule, Float: how a node is quantized; Case: an example of it
    reasons        OperatorLimit, InfiniteOperand: why a node stays in float
    contract       Operator, IntegerOperator, and the registers of both
    call           Call: what a kernel computes with
    integer_call   IntegerCall: the same, for kernels of operators on integers
    site           Site, DynamicSite: where a lowering writes its nodes
    unfolded       Unfolded: a node with a weight as a matrix product
    node_plan      NodePlan, DynamicNodePlan: the qparams of one node
    precision      Precision: in which numbers a node reads, computes and gives
    nodes          constants and shapes of a node, for its rule
    examples       arrays for its cases

An operator file imports what is listed below from here, types of arrays among it, and functions
from `nodes` and `examples`.
"""

from onnxq.core.arrays import Array, Ints, Reals, Singles
from onnxq.operator.call import AttributeValue, Call, NodeCall
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
from onnxq.operator.node_plan import DynamicNodePlan, NodePlan
from onnxq.operator.precision import Precision
from onnxq.operator.reasons import InfiniteOperand, OperatorLimit
from onnxq.operator.response import Curve, Factored, Linear, Normalizing, Response, Summed, Weighted
from onnxq.operator.rule import (
    Case,
    DynamicRule,
    DynamicWeight,
    Float,
    OpCategory,
    Rule,
    WeightSlot,
)
from onnxq.operator.site import DynamicSite, NodeSite, Site
from onnxq.operator.unfolded import Unfolded

__all__ = [
    "Array",
    "AttributeValue",
    "Call",
    "Case",
    "Curve",
    "DynamicNodePlan",
    "DynamicRule",
    "DynamicSite",
    "DynamicWeight",
    "Factored",
    "Float",
    "InfiniteOperand",
    "IntegerCall",
    "IntegerOperator",
    "Ints",
    "Linear",
    "NodeCall",
    "NodePlan",
    "NodeSite",
    "Normalizing",
    "OpCategory",
    "Operator",
    "OperatorLimit",
    "Precision",
    "Reals",
    "Response",
    "Rule",
    "Singles",
    "Site",
    "Summed",
    "Unfolded",
    "WeightSlot",
    "Weighted",
    "enter",
    "integer_registry",
    "register",
    "register_integer",
    "registry",
]

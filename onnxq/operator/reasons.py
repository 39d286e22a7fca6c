"""Reasons that operators give, and those that static and dynamic quantization share."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.core.reason import Reason


@dataclass(frozen=True)
class OperatorLimit(Reason):
    """An operator, or its kernel in ONNX Runtime, has no quantized form of such a node.

    Attributes:
        said: why, by the author of the operator.
    """

    WORDS = "{said}"
    said: str


@dataclass(frozen=True)
class InfiniteOperand(OperatorLimit):
    """A constant operand puts numbers that stand for infinity into the result.

    No node behind can have a scale for them.
    """


@dataclass(frozen=True)
class LeftByRequest(Reason):
    """The qconfig leaves the node in float."""

    WORDS = "the qconfig leaves it in float"


@dataclass(frozen=True)
class TensorLeftByRequest(Reason):
    """The qconfig leaves a tensor of the node in float."""

    WORDS = "the qconfig leaves tensor '{tensor}' in float"
    tensor: str


@dataclass(frozen=True)
class ComputedAtRunTime(Reason):
    """A weight or a bias of the node is no constant."""

    WORDS = "its {operand} '{tensor}' is computed at run time"
    operand: str
    tensor: str


@dataclass(frozen=True)
class NotRun(Reason):
    """ONNX Runtime does not run the model with the node quantized."""

    WORDS = "with it in integers, ONNX Runtime does not run: {message}"
    message: str


@dataclass(frozen=True)
class NotTried(Reason):
    """A bisection left the node in float to try others."""

    WORDS = "not tried yet"


@dataclass(frozen=True)
class HowAndWhy(Reason):
    """A node runs so, and that is why."""

    WORDS = "{how}: {why}"
    how: Reason
    why: Reason

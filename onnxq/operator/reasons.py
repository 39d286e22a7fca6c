"""Reasons that operators give, and those that static and dynamic quantization share."""

from onnxq.core.reason import Reason


class OperatorLimit(Reason):
    """An operator, or its kernel in ONNX Runtime, has no quantized form of such a node.

    Attributes:
        said: why, by the author of the operator.
    """

    WORDS = "{said}"
    said: str


class InfiniteOperand(OperatorLimit):
    """A constant operand puts numbers that stand for infinity into the result."""


class LeftByRequest(Reason):
    WORDS = "the qconfig leaves it in float"


class LeftByRepair(Reason):
    WORDS = "repair leaves it in float: the model is nearer to float so"


class TensorLeftByRequest(Reason):
    WORDS = "the qconfig leaves tensor '{tensor}' in float"
    tensor: str


class ComputedAtRunTime(Reason):
    WORDS = "its {operand} '{tensor}' is computed at run time"
    operand: str
    tensor: str


class InGroupsAlready(Reason):
    WORDS = "the file that was given stores its weights in groups, and they stay as they are"
    EXPECTED = True


class NotRun(Reason):
    WORDS = "with it in integers, ONNX Runtime does not run: {message}"
    message: str


class NotTried(Reason):
    WORDS = "not tried yet"


class HowAndWhy(Reason):
    WORDS = "{how}: {why}"
    how: Reason
    why: Reason

"""Reasons of dynamic quantization: why a node stays in float, or how its weights are stored."""

from onnxq.core.reason import Reason
from onnxq.operator import Precision


class NotAsked(Reason):
    WORDS = "the qconfig does not ask for dynamic quantization of it"


class NoWeights(Reason):
    WORDS = "it has no weights that dynamic quantization stores"
    EXPECTED = True


class NoDynamicOperator(Reason):
    """The node has a constant matrix, and its operator no form without scales of activations.

    Attributes:
        remedy: that there is, in words; empty: none is known.
    """

    label: str
    constant: str
    remedy: str

    @property
    def words(self) -> str:
        return (
            f"its constant '{self.constant}' stays in float: {self.label} has no dynamic or "
            f"weight-only form{'; ' if self.remedy else ''}{self.remedy}"
        )


class WeightAbsent(Reason):
    WORDS = "a weight that it needs is absent"


class WeightNotFloat32(Reason):
    WORDS = "its weight '{tensor}' is {dtype}, not float32"
    tensor: str
    dtype: str


class WeightEmpty(Reason):
    WORDS = "its weight '{tensor}' is empty"
    tensor: str


class StoredInFewerBits(Reason):
    WORDS = "the file stores its weight '{tensor}' in {bits} bits, and others would be larger"
    tensor: str
    bits: int


class AheadOfAmplification(Reason):
    WORDS = (
        "{reader} reads its results, and integers may lose all that is quiet; samples (onnxq "
        "quantize) or a precision in the qconfig decide otherwise"
    )
    reader: str


class SlowerThanFloat(Reason):
    """Every precision is slower than float on the target.

    Attributes:
        speedup: of the fastest precision over float, below 1.
        rows: that were looked at, where the model leaves open how many come; None: it does not.
    """

    target: str
    speedup: float
    precision: Precision
    rows: int | None

    @property
    def words(self) -> str:
        at = ""
        if self.rows is not None:
            at = f", at {self.rows} row{'s' * (self.rows > 1)}: the model leaves sizes open"
        slower = f"run at {self.speedup:.2f} of its float speed"
        if self.precision is Precision.WEIGHT_ONLY:
            slower = "be no faster than in float"
        return (
            f"on {self.target} it would {slower} "
            f"(precision '{self.precision.value}'{at}); objective 'size' quantizes it anyway"
        )


class TableInFloat(Reason):
    WORDS = (
        "its lookup table '{table}' stays in the file in float for '{reader}': integers beside it "
        "would make the file larger; objective 'size' quantizes it anyway"
    )
    table: str
    reader: str


class OneNumberPerRow(Reason):
    WORDS = "its lookup table '{table}' has one number per row: one scale would round each of them"
    table: str


class SavesTooLittle(Reason):
    WORDS = "its lookup table takes {bytes} bytes: below {least} integers save too little"
    bytes: int
    least: int


class ComputedFromLess(Reason):
    WORDS = "the file computes its weight '{weight}' from {bytes} bytes: integers take more"
    weight: str
    bytes: int


class NoPrecisionTakes(Reason):
    WORDS = "none of the precisions that {op_type} has here ({precisions}) takes {dtype} weights"
    op_type: str
    precisions: str
    dtype: str


class DifferentTypes(Reason):
    WORDS = "the qconfig gives its weights different types: {dtypes}"
    dtypes: str


class NoMatrix(Reason):
    WORDS = "its weight is no matrix, which precision '{precision}' needs"
    precision: str


class LacksPrecision(Reason):
    """The node does not have the precision that the qconfig names.

    Attributes:
        missing: why, in words; empty: it is not known.
        precisions: that the node has, in words.
    """

    op_type: str
    precision: str
    missing: str
    precisions: str

    @property
    def words(self) -> str:
        why = f" ({self.missing})" if self.missing else ""
        return (
            f"this {self.op_type} has no precision '{self.precision}', which the qconfig asks "
            f"for{why}; it has {self.precisions}"
        )


class TooNarrow(Reason):
    WORDS = "it takes integers of {min_bits} bits or more, the qconfig asks for {dtype}"
    min_bits: int
    dtype: str


class TooLargeForHalf(Reason):
    WORDS = "its weight '{tensor}' reaches {largest:g}, which float16 does not hold"
    tensor: str
    largest: float


class ZeroInHalf(Reason):
    WORDS = "its weight '{tensor}' reaches only {largest:g}: in float16 all of it would be 0"
    tensor: str
    largest: float


class WeightsStored(Reason):
    """The weights of a node are stored as integers or float16.

    Attributes:
        weights: their type, in words.
        missing: why it has not its operator's usual form; empty: it has, or nobody asks.
    """

    weights: str
    run: str
    missing: str = ""

    @property
    def words(self) -> str:
        return f"{self.weights}, {self.run}{'; ' if self.missing else ''}{self.missing}"

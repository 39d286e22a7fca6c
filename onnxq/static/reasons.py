"""Reasons of static quantization: why a node stays in float, or how it runs in integers."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.core.reason import Reason


def conversions(count: int) -> str:
    """The count in words."""
    return "1 conversion" if count == 1 else f"{count or 'no'} conversions"


# --- each node alone


@dataclass(frozen=True)
class QuantizedAtRunTime(Reason):
    """The qconfig, or a decider, wants the node quantized dynamically."""

    WORDS = "quantized dynamically"


@dataclass(frozen=True)
class NoDynamicForm(Reason):
    """The qconfig asks for dynamic quantization, which the operator does not have."""

    WORDS = "{label} has no dynamically quantized form, which the qconfig asks for"
    label: str


@dataclass(frozen=True)
class InLoopBody(Reason):
    """The node stands in the body of a loop."""

    WORDS = "inside the body of {loop}: static quantization leaves loop bodies in float"
    loop: str


@dataclass(frozen=True)
class NoIntegerForm(Reason):
    """The operator has no integer form.

    Attributes:
        label: of the operator.
        floats: float tensors around the node, each of which would take a conversion.
    """

    label: str
    floats: int

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        ends = f": integers would take {conversions(self.floats)}" if self.floats else ""
        return f"onnxq has no integer form of {self.label}{ends}"


@dataclass(frozen=True)
class AbsentInput(Reason):
    """An activation of the operator's rule is missing."""

    WORDS = "an input that it needs is absent"


@dataclass(frozen=True)
class UnknownType(Reason):
    """A tensor has no type in the model."""

    WORDS = "the type of tensor '{tensor}' is not known"
    tensor: str


@dataclass(frozen=True)
class NotATensor(Reason):
    """A value of the node is a sequence or an optional."""

    WORDS = "'{value}' is no tensor (it is a sequence or an optional)"
    value: str


@dataclass(frozen=True)
class NotFloat32(Reason):
    """The node computes in another type; nodes of one type are one group of a report."""

    WORDS = "it computes in {dtype}: integers stand for float32"
    dtype: str


@dataclass(frozen=True)
class EmptyTensor(Reason):
    """A tensor of the node holds no number."""

    WORDS = "tensor '{tensor}' has no element"
    tensor: str


@dataclass(frozen=True)
class EmptyConstant(Reason):
    """A weight or a bias holds no number."""

    WORDS = "its {operand} '{tensor}' has no element"
    operand: str
    tensor: str


@dataclass(frozen=True)
class NoKernelForTypes(Reason):
    """The integer form has no kernel for the types that the qconfig asks for."""

    activations: str
    weights: str

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        weights = f" with {self.weights} weights" if self.weights else ""
        return f"its integer form has no kernel for {self.activations} activations{weights}"


@dataclass(frozen=True)
class UnlessNamed(Reason):
    """The node stays in float for that reason, unless the qconfig names it."""

    WORDS = "{why}; name it in the qconfig to have it in integers anyway"
    why: Reason


@dataclass(frozen=True)
class KernelMissing(Reason):
    """The oldest ONNX Runtime that files are written for lacks the kernel."""

    WORDS = "ONNX Runtime {version}, the oldest supported one, has no {op_type} on {dtype}"
    version: str
    op_type: str
    dtype: str


@dataclass(frozen=True)
class SlowInIntegers(Reason):
    """The target runs the operator slower in integers."""

    WORDS = "ONNX Runtime runs {label} in integers at {ratio:.2f} of its float speed"
    label: str
    ratio: float


@dataclass(frozen=True)
class ConversionsAlone(Reason):
    """ONNX Runtime computes the node in float between Q/DQ: only conversions would be added."""

    count: int

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        return (
            f"no integer kernel in ONNX Runtime: integers would take {conversions(self.count)}; "
            "name "
            "it in the qconfig to have them anyway"
        )


@dataclass(frozen=True)
class BoundsOutsideRange(Reason):
    """A Clip of its own reads integers whose range need not reach its bounds."""

    WORDS = "its bounds {low:g} and {high:g} may both lie outside the range of its input"
    low: float
    high: float


@dataclass(frozen=True)
class ReadsInfinity(Reason):
    """The node reads what a constant ahead of it put in for infinity."""

    WORDS = (
        "it reads numbers that stand for infinity, which a constant put in before it: "
        "no scale can hold them beside the data"
    )


# --- beside its neighbours


@dataclass(frozen=True)
class _Conversions(Reason):
    """Base of reasons that count conversions around a node, in integers and in float."""

    in_integers: int
    in_float: int

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        counted = f"{conversions(self.in_integers)} in place of {self.in_float or 'none'}"
        return self.WORDS.format(counted=counted)


@dataclass(frozen=True)
class InputsInFloat(_Conversions):
    """The inputs of an element-wise node are float."""

    WORDS = "its inputs are float: integers would take {counted}"


@dataclass(frozen=True)
class ReadInFloat(_Conversions):
    """Only float nodes read the result of a cheap node."""

    WORDS = (
        "no integer node reads its result: integers would round it once more, and take {counted}"
    )


@dataclass(frozen=True)
class MovesDataOnly(_Conversions):
    """The node moves data between float nodes."""

    WORDS = "it only moves data, and neither side of it is in integers: {counted}"


@dataclass(frozen=True)
class MovesUnreadData(_Conversions):
    """The node moves data that only float nodes read."""

    WORDS = "it only moves data that no integer node reads: integers would take {counted}"


@dataclass(frozen=True)
class BetterBehind(Reason):
    """The node gives fewer or bounded numbers: they are quantized behind it."""

    WORDS = "its input is float: the 1 conversion is better and faster behind it"


# --- how a node runs in integers


@dataclass(frozen=True)
class IntegerKernel(Reason):
    """An integer kernel computes the node.

    Attributes:
        weight: type of the weight; empty: there is none.
        within: largest magnitude of an int8 weight; None: the weight is of another type.
        gives_integers: whether the result is quantized.
    """

    weight: str
    within: int | None
    gives_integers: bool

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        within = "" if self.within is None else f" within +-{self.within}"
        weight = [f"{self.weight} weight{within}"] if self.weight else []
        return ", ".join(
            ["integers in", *weight, "integers out" if self.gives_integers else "float32 out"]
        )


@dataclass(frozen=True)
class ClampOnIntegers(Reason):
    """A Relu or Clip bounds integers."""

    WORDS = "bounds on the integers"


@dataclass(frozen=True)
class FloatBetweenIntegers(Reason):
    """ONNX Runtime dequantizes, computes and quantizes."""

    WORDS = "computed in float32, integers in and out"


@dataclass(frozen=True)
class MovesIntegers(Reason):
    """The node copies integers."""

    WORDS = "moves integers, qparams shared"


@dataclass(frozen=True)
class PartOf(Reason):
    """The kernel of another node computes this node too."""

    WORDS = "part of {op_type} '{node}'"
    op_type: str
    node: str


@dataclass(frozen=True)
class OneKernel(Reason):
    """One kernel in place of two is what a folded node saves."""

    WORDS = "part of {op_type}: 1 kernel for both"
    op_type: str


@dataclass(frozen=True)
class FasterProducts(Reason):
    """The target multiplies integers faster."""

    WORDS = "{integers:g} against {floats:g} GMAC/s in float"
    integers: float
    floats: float


@dataclass(frozen=True)
class SmallerWeights(Reason):
    """The weights of the node take less memory."""

    WORDS = "weights of 1 byte in place of 4"


@dataclass(frozen=True)
class FewerConversions(Reason):
    """A float node between integers would convert."""

    WORDS = "in float it would need {count} conversions"
    count: int


@dataclass(frozen=True)
class SmallerValues(Reason):
    """The node moves a quarter of the bytes."""

    WORDS = "1 byte per value in place of 4"


# --- what was measured of whole networks
# On models/transformer and a small ViT with a convolutional stem (x86-vnni, one thread).


@dataclass(frozen=True)
class FloatReadersOfResult(Reason):
    """Float nodes read the result of a product."""

    WORDS = (
        "float nodes read its result: integers cost a ViT that was measured 5.7 dB and 0.12 of its "
        "time"
    )


@dataclass(frozen=True)
class ProductOfActivations(Reason):
    """The node multiplies two activations."""

    WORDS = (
        "a product of two activations: integers cost a ViT that was measured 4.5 dB and 0.07 of "
        "its "
        "time"
    )


@dataclass(frozen=True)
class SumWithFloat(Reason):
    """The node adds a float operand, for float readers."""

    WORDS = (
        "one of its operands is float, and no integer node reads the sum: integers would take 2 "
        "conversions in place of 1"
    )


@dataclass(frozen=True)
class NobodyReads(Reason):
    """No integer node reads what the node moves or bounds."""

    WORDS = (
        "no integer node reads what it gives: integers would take 1 conversion, and save at most 1"
    )


@dataclass(frozen=True)
class NoStaticForm(Reason):
    """The operator has a dynamic form alone."""

    WORDS = "no kernel with scales known ahead; an LSTM takes 0.70 of its float time so"


@dataclass(frozen=True)
class RepeatedByLoop(Reason):
    """A Loop repeats a node that has a dynamic form."""

    WORDS = "a Loop repeats it: static quantization leaves bodies of loops in float"


@dataclass(frozen=True)
class LookupForFloats(Reason):
    """Float nodes read rows of an embedding."""

    WORDS = "a table that float nodes read takes 0.26 of its bytes as int8, with a scale per row"


@dataclass(frozen=True)
class CarriesState(Reason):
    """The node carries state from batch to batch without a product."""

    WORDS = "it carries state '{state}' from batch to batch, where what integers round off adds up"
    state: str


# --- what samples tell


@dataclass(frozen=True)
class BelowSqnr(Reason):
    """Eight bits of a tensor, or of what is computed from it, keep too little.

    Attributes:
        tensor: its name.
        sqnr_db: of the tensor in integers; None: not known.
        behind_db: of what the node `behind` gives; None: the tensor itself is worse.
        behind: the node that magnifies the error, in words.
        channels: how far its widest channels stick out, in words; empty: they do not.
        roundings: of the model without such tensors.
        less_db: by which they lose less.
    """

    tensor: str
    sqnr_db: float | None
    behind_db: float | None
    behind: str
    channels: str
    roundings: int
    less_db: float

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        in_all = f"without such tensors, {self.roundings} roundings lose {self.less_db:.1f} dB less"
        if self.behind_db is None:
            return f"tensor '{self.tensor}' would keep {self.sqnr_db:.1f} dB in 8 bits; {in_all}"
        in_itself = "" if self.sqnr_db is None else f" ({self.sqnr_db:.1f} dB in itself)"
        return (
            f"tensor '{self.tensor}' would keep {self.behind_db:.1f} dB behind {self.behind} "
            f"in 8 bits{in_itself}{self.channels}; {in_all}"
        )


@dataclass(frozen=True)
class NoScaleComputed(Reason):
    """The qconfig names an observer that gives no scale."""

    WORDS = (
        "the qconfig gives tensor '{tensor}' {observer}, which computes no scale for activations"
    )
    tensor: str
    observer: str


@dataclass(frozen=True)
class TensorNotFinite(Reason):
    """Samples gave NaN or infinity."""

    WORDS = "tensor '{tensor}' is not finite: {said}"
    tensor: str
    said: str


@dataclass(frozen=True)
class NeverObserved(Reason):
    """No sample reached the tensor."""

    WORDS = "tensor '{tensor}' was never observed: no sample reached it"
    tensor: str


# --- what times tell


@dataclass(frozen=True)
class SlowerInIntegers(Reason):
    """Nodes take longer in integers, conversions included.

    Attributes:
        beside: other nodes that go to float together with this one.
        saved_us: time that float saves.
        model_us: time of the model.
        target: machine of the table of times.
    """

    beside: int
    saved_us: float
    model_us: float
    target: str

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        beside = f" with {self.beside} beside it" if self.beside else ""
        return (
            f"float{beside} saves {self.saved_us:g} of the model's {self.model_us:g} us, "
            f"conversions included (times measured on {self.target})"
        )


@dataclass(frozen=True)
class TooLittleSaved(Reason):
    """All quantized nodes together save less than their roundings are worth."""

    WORDS = (
        "all {count} nodes that the table of times leaves on integers would change the model's "
        "{float_us:g} us in float by {change_us:+g}: too little for what they round "
        "(times measured on {target})"
    )
    count: int
    float_us: float
    change_us: float
    target: str


@dataclass(frozen=True)
class NoisyStem(Reason):
    """Integers at the start of a stream of float sums cost more accuracy than they save time."""

    WORDS = (
        "integers of {sqnr_db:.1f} dB would begin a stream of float sums, and save {saved_us:g} of "
        "the {float_us:g} us that the model takes in float (times measured on {target})"
    )
    sqnr_db: float
    saved_us: float
    float_us: float
    target: str

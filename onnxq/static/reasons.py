"""Reasons of static quantization: why a node stays in float, or how it runs in integers."""

from onnxq.core.reason import Reason


def conversions(count: int) -> str:
    """The count in words."""
    return "1 conversion" if count == 1 else f"{count or 'no'} conversions"


# --- each node alone


class QuantizedAtRunTime(Reason):
    WORDS = "quantized dynamically"


class NoDynamicForm(Reason):
    WORDS = "{label} has no dynamically quantized form, which the qconfig asks for"
    label: str


class InLoopBody(Reason):
    WORDS = "inside the body of {loop}: static quantization leaves loop bodies in float"
    loop: str


class NoIntegerForm(Reason):
    """The operator has no integer form.

    Attributes:
        floats: float tensors around the node, each of which would take a conversion.
    """

    label: str
    floats: int

    @property
    def words(self) -> str:
        ends = f": integers would take {conversions(self.floats)}" if self.floats else ""
        return f"onnxq has no integer form of {self.label}{ends}"


class AbsentInput(Reason):
    WORDS = "an input that it needs is absent"


class UnknownType(Reason):
    WORDS = "the type of tensor '{tensor}' is not known"
    tensor: str


class NotATensor(Reason):
    WORDS = "'{value}' is no tensor (it is a sequence or an optional)"
    value: str


class NotFloat32(Reason):
    WORDS = "it computes in {dtype}: integers stand for float32"
    dtype: str


class EmptyTensor(Reason):
    WORDS = "tensor '{tensor}' has no element"
    tensor: str


class EmptyConstant(Reason):
    WORDS = "its {operand} '{tensor}' has no element"
    operand: str
    tensor: str


class NoKernelForTypes(Reason):
    """The integer form has no kernel for the types that the qconfig asks for."""

    activations: str
    weights: str

    @property
    def words(self) -> str:
        weights = f" with {self.weights} weights" if self.weights else ""
        return f"its integer form has no kernel for {self.activations} activations{weights}"


class UnlessNamed(Reason):
    WORDS = "{why}; name it in the qconfig to have it in integers anyway"
    why: Reason


class KernelMissing(Reason):
    WORDS = "ONNX Runtime {version}, the oldest supported one, has no {op_type} on {dtype}"
    version: str
    op_type: str
    dtype: str


class SlowInIntegers(Reason):
    WORDS = "ONNX Runtime runs {label} in integers at {ratio:.2f} of its float speed"
    label: str
    ratio: float


class ConversionsAlone(Reason):
    """ONNX Runtime computes the node in float between Q/DQ: only conversions would be added."""

    count: int

    @property
    def words(self) -> str:
        return (
            f"no integer kernel in ONNX Runtime: integers would take {conversions(self.count)}; "
            "name it in the qconfig to have them anyway"
        )


class BoundsOutsideRange(Reason):
    WORDS = "its bounds {low:g} and {high:g} may both lie outside the range of its input"
    low: float
    high: float


class ReadsInfinity(Reason):
    WORDS = (
        "it reads numbers that stand for infinity, which a constant put in before it: no scale "
        "can hold them beside the data"
    )


# --- beside its neighbours


class _Conversions(Reason):
    """Base of reasons that count conversions around a node, in integers and in float."""

    in_integers: int
    in_float: int

    @property
    def words(self) -> str:
        counted = f"{conversions(self.in_integers)} in place of {self.in_float or 'none'}"
        return self.WORDS.format(counted=counted)


class InputsInFloat(_Conversions):
    WORDS = "its inputs are float: integers would take {counted}"


class ReadInFloat(_Conversions):
    WORDS = (
        "no integer node reads its result: integers would round it once more, and take {counted}"
    )


class MovesDataOnly(_Conversions):
    WORDS = "it only moves data, and neither side of it is in integers: {counted}"


class MovesUnreadData(_Conversions):
    WORDS = "it only moves data that no integer node reads: integers would take {counted}"


class BetterBehind(Reason):
    WORDS = "its input is float: the 1 conversion is better and faster behind it"


# --- how a node runs in integers


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
        within = "" if self.within is None else f" within +-{self.within}"
        weight = [f"{self.weight} weight{within}"] if self.weight else []
        return ", ".join(
            ["integers in", *weight, "integers out" if self.gives_integers else "float32 out"]
        )


class ClampOnIntegers(Reason):
    WORDS = "bounds on the integers"


class FloatBetweenIntegers(Reason):
    WORDS = "computed in float32, integers in and out"


class FloatBetweenWideIntegers(Reason):
    """The file has Q and DQ around the node, of a type that no kernel of ONNX Runtime takes."""

    WORDS = "computes in float32 between DQ and Q: ONNX Runtime has no kernel for {dtype}"
    dtype: str


class MovesIntegers(Reason):
    WORDS = "moves integers, qparams shared"


class PartOf(Reason):
    WORDS = "part of {op_type} '{node}'"
    op_type: str
    node: str


class OneKernel(Reason):
    WORDS = "part of {op_type}: 1 kernel for both"
    op_type: str


class FasterLinearLayers(Reason):
    WORDS = "{integers:g} against {floats:g} GMAC/s in float"
    integers: float
    floats: float


class SmallerWeights(Reason):
    WORDS = "weights of 1 byte in place of 4"


class FewerConversions(Reason):
    WORDS = "in float it would need {count} conversions"
    count: int


class SmallerValues(Reason):
    WORDS = "1 byte per value in place of 4"


# --- what was measured of whole networks
# On models/transformer and a small ViT with a convolutional stem (x86-vnni, one thread).


class FloatReadersOfResult(Reason):
    WORDS = (
        "float nodes read its result: in a ViT that was measured, integers here lost 5.7 dB, and "
        "took 0.12 of its time more"
    )


class MatMulOfActivations(Reason):
    WORDS = (
        "a MatMul of two activations: in a ViT that was measured, integers here lost 4.5 dB, and "
        "took 0.07 of its time more"
    )


class SumWithFloat(Reason):
    WORDS = (
        "one of its operands is float, and no integer node reads the sum: integers would take 2 "
        "conversions in place of 1"
    )


class NobodyReads(Reason):
    WORDS = (
        "no integer node reads what it gives: integers would take 1 conversion, and save at most 1"
    )


class NoStaticForm(Reason):
    WORDS = "no kernel with scales known ahead: ranges of each run if faster (0.70 for an LSTM)"


class RepeatedByLoop(Reason):
    WORDS = "a Loop repeats it: static quantization leaves bodies of loops in float"


class LookupForFloats(Reason):
    WORDS = "a table that float nodes read takes 0.26 of its bytes as int8, with a scale per row"


class CarriesState(Reason):
    WORDS = "it carries state '{state}' from batch to batch, where what integers round off adds up"
    state: str


# --- what samples tell


class BelowSqnr(Reason):
    """Eight bits of a tensor, or of what is computed from it, keep too little.

    Attributes:
        sqnr_db: of the tensor in integers; None: not known.
        behind_db: of what the node `behind` gives; None: the tensor itself is worse.
        behind: the node that magnifies the error, in words.
        channels: how far its widest channels stick out, in words; empty: they do not.
        roundings: of the model without such tensors.
    """

    tensor: str
    sqnr_db: float | None
    behind_db: float | None
    behind: str
    channels: str
    roundings: int
    less_db: float

    @property
    def severity(self) -> float:
        known = [db for db in (self.sqnr_db, self.behind_db) if db is not None]
        return -min(known, default=0.0)

    @property
    def words(self) -> str:
        in_all = f"without such tensors, {self.roundings} roundings lose {self.less_db:.1f} dB less"
        if self.behind_db is None:
            return f"tensor '{self.tensor}' would keep {self.sqnr_db:.1f} dB in 8 bits; {in_all}"
        in_itself = "" if self.sqnr_db is None else f" ({self.sqnr_db:.1f} dB in itself)"
        return (
            f"tensor '{self.tensor}' would keep {self.behind_db:.1f} dB behind {self.behind} "
            f"in 8 bits{in_itself}{self.channels}; {in_all}"
        )


class NoScaleComputed(Reason):
    WORDS = (
        "the qconfig gives tensor '{tensor}' {observer}, which computes no scale for activations"
    )
    tensor: str
    observer: str


class TensorNotFinite(Reason):
    WORDS = "tensor '{tensor}' is not finite: {said}"
    tensor: str
    said: str


class NeverObserved(Reason):
    WORDS = "tensor '{tensor}' was never observed: no sample reached it"
    tensor: str


# --- what times tell


class SlowerInIntegers(Reason):
    """Nodes take longer in integers, conversions included.

    Attributes:
        beside: other nodes that go to float together with this one.
        target: machine of the table of times.
    """

    beside: int
    saved_us: float
    model_us: float
    target: str

    @property
    def severity(self) -> float:
        return self.saved_us

    @property
    def words(self) -> str:
        beside = f" with {self.beside} beside it" if self.beside else ""
        return (
            f"float{beside} saves {self.saved_us:g} of the model's {self.model_us:g} us, "
            f"conversions included (times measured on {self.target})"
        )


class TooLittleSaved(Reason):
    WORDS = (
        "all {count} nodes that the table of times leaves on integers would change the model's "
        "{float_us:g} us in float by {change_us:+g}: too little for what they round (times "
        "measured on {target})"
    )
    count: int
    float_us: float
    change_us: float
    target: str


class NoisyStem(Reason):
    WORDS = (
        "float sums would add to what integers round here (they keep {sqnr_db:.1f} dB), to save "
        "{saved_us:g} of the model's {float_us:g} us in float (times measured on {target})"
    )
    sqnr_db: float
    saved_us: float
    float_us: float
    target: str

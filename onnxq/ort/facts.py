"""Facts about ONNX Runtime: one record per operator of what it does with it.

    facts.of(node)              of the installed version: what will run here
    facts.of(node, OLDEST)      of the oldest supported one: what a plan may rely on

An operator without a record has the defaults of `Fact`. Measured on x86-64, on ONNX Runtime 1.29 to
1.32; `tests/ort/test_facts.py` asks the installed one about every operator that it can run, in both
directions. What fails there after a new release is its change log: end the row with `until`, and
write one of what holds `since`.
"""

import dataclasses
import enum
import functools
from dataclasses import KW_ONLY, dataclass

import onnx_ir as ir

from onnxq.operator.nodes import ONNX_DOMAINS
from onnxq.ort.version import OLDEST, Version, installed

DOMAINS = (*ONNX_DOMAINS, "com.microsoft")
"""Domains that ONNX Runtime knows; what has one name in two of them has the same facts in both."""
UINT8, INT8 = ir.DataType.UINT8, ir.DataType.INT8


class Rounding(enum.Enum):
    """How float results are rounded, which decides whether two machines agree on them."""

    NONE = "none"
    """Elements of the inputs, bounds, whole numbers, or no floats at all."""
    ONCE = "once"
    """One operation of IEEE 754 each: alike everywhere, unless it is fused with another one."""
    OWN = "own"
    """Sums and series in an order of the machine's own: last bits may differ."""


class Conversion(enum.Enum):
    """Kinds of numbers between which an operator converts."""

    TO_INTEGERS = "to integers"
    FROM_INTEGERS = "from integers"
    TYPES = "types"


@dataclass(frozen=True, slots=True)
class Fact:
    """Behaviour of ONNX Runtime towards an operator; where attributes decide, what it may do.

    Attributes:
        op_type: of ai.onnx or com.microsoft.
        fuses: DQ -> op -> Q becomes an operator on integers.
        without_q: DQ -> op becomes one already.
        takes_int8: it does so for int8 integers that cannot become uint8, too.
        rounds_constants: DQ -> op(x, float constants) -> Q has its constants quantized.
        packs_beside_16_bits: DQ(constant matrix) -> op becomes MatMulNBits, accuracy level 4, also
            where Q and DQ of 16 bits are around it, and with blocks of any size.
        moved_past: a Q behind it goes ahead of it, and a DQ ahead of it goes behind it.
        removed: it vanishes where it changes nothing, so that Q and DQ around it are neighbours.
        swallowed: it vanishes ahead of a Q whose integers end where its results do.
        slowdown: time on integers over time on floats, where a Q is moved ahead of it behind a node
            whose results are not channels last.
        lacks: types of integers that its ONNX schema allows and ONNX Runtime has no kernel for.
        rounding: of its float results.
        results: type of its first result, where its schema has one only, or none but float32 runs
            on a CPU; None: that of an input.
        on_integers: it is defined on integers, and computes in integers.
        on_data: it reads the numbers of its inputs itself; not sizes alone, nor through a body.
        converts: between which kinds of numbers.
        unpacks: types of a constant from which a session makes 8-bit integers when it is opened.
        since: the first version that this holds for, the oldest supported one at least.
        until: the first version that it no longer holds for; None: it holds for the newest.
    """

    op_type: str
    _: KW_ONLY
    fuses: bool = False
    without_q: bool = False
    takes_int8: bool = True
    rounds_constants: bool = False
    packs_beside_16_bits: bool = False
    moved_past: bool = False
    removed: bool = False
    swallowed: bool = False
    slowdown: float = 1.0
    lacks: frozenset[ir.DataType] = frozenset()
    rounding: Rounding = Rounding.OWN
    results: ir.DataType | None = None
    on_integers: bool = False
    on_data: bool = True
    converts: Conversion | None = None
    unpacks: frozenset[ir.DataType] = frozenset()
    since: Version = OLDEST
    until: Version | None = None

    @property
    def stays_float(self) -> bool:
        """Whether the node computes on its own floats, though Q and DQ stand around it."""
        return not (self.fuses or self.without_q or self.rounds_constants)

    @property
    def transparent(self) -> bool:
        """Whether Q and DQ on its two sides may come to stand beside each other's nodes."""
        return self.moved_past or self.removed

    @property
    def converts_integers(self) -> bool:
        """Whether it makes integers of numbers, or numbers of integers."""
        return self.converts in (Conversion.TO_INTEGERS, Conversion.FROM_INTEGERS)

    def holds(self, version: Version) -> bool:
        """Whether this is so in that version."""
        return self.since <= version and (self.until is None or version < self.until)


def of(node: ir.Node, version: Version | None = None) -> Fact:
    """The fact that holds for a node's operator.

    Args:
        node: of any domain; one that ONNX Runtime does not know has the defaults.
        version: of ONNX Runtime; None: the installed one. Newer ones than were measured, and older
            ones than are supported, are taken to be as the nearest that was.
    """
    if node.domain not in DOMAINS:
        return Fact(node.op_type)
    return named(node.op_type, version)


def named(op_type: str, version: Version | None = None) -> Fact:
    """The fact that holds for an operator of ai.onnx or com.microsoft; else as `of`.

    An optimized graph is asked by name: ONNX Runtime's layouts have domains of their own, and what
    is named alike there (Conv of com.microsoft.nchwc) rounds alike and has results of that type.
    """
    at = max(installed() if version is None else version, OLDEST)
    held = [fact for fact in _by_name().get(op_type, ()) if fact.holds(at)]
    return held[0] if held else Fact(op_type)


@functools.cache
def _by_name() -> dict[str, tuple[Fact, ...]]:
    return {
        name: tuple(f for f in FACTS if f.op_type == name) for name in {f.op_type for f in FACTS}
    }


def _since_1_32(fact: Fact) -> tuple[Fact, Fact]:
    """A MatMul's fact before and since ONNX Runtime packs its matrix between 16-bit Q and DQ."""
    return (
        dataclasses.replace(fact, until=(1, 32)),
        dataclasses.replace(fact, packs_beside_16_bits=True, since=(1, 32)),
    )


_NONE, _ONCE = Rounding.NONE, Rounding.ONCE
_INT8, _BOTH = frozenset({INT8}), frozenset({UINT8, INT8})
_PACKED = frozenset({ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2})

FACTS = (
    # fused with Q and DQ around
    Fact("Add", fuses=True, rounding=_ONCE),
    Fact("ArgMax", without_q=True, results=ir.DataType.INT64),
    Fact("AveragePool", fuses=True),
    Fact("Concat", fuses=True, rounding=_NONE),
    Fact("Conv", fuses=True, takes_int8=False, rounds_constants=True),
    Fact("ConvTranspose", rounds_constants=True),
    Fact("DepthToSpace", fuses=True, rounding=_NONE),
    Fact("Flatten", fuses=True, rounding=_NONE),
    Fact("Gather", fuses=True, rounding=_NONE),
    Fact("GatherElements", fuses=True, rounding=_NONE),
    *_since_1_32(Fact("Gemm", fuses=True, without_q=True, rounds_constants=True)),
    Fact("GlobalAveragePool", fuses=True),
    Fact("LeakyRelu", fuses=True),
    *_since_1_32(Fact("MatMul", fuses=True, without_q=True, takes_int8=False)),
    Fact("Mul", fuses=True, rounding=_ONCE),
    Fact("ReduceMax", fuses=True, rounding=_NONE),
    Fact("ReduceMin", fuses=True, rounding=_NONE),
    Fact("Resize", fuses=True),
    Fact("Sigmoid", fuses=True),
    Fact("Softmax", fuses=True),
    Fact("Split", fuses=True, rounding=_NONE),
    Fact("Tile", fuses=True, rounding=_NONE),
    Fact("Where", fuses=True, rounding=_NONE, lacks=_INT8, until=(1, 31)),
    Fact("Where", fuses=True, rounding=_NONE, since=(1, 31)),
    # moved past by Q and DQ
    Fact("MaxPool", fuses=True, moved_past=True, slowdown=20.0, rounding=_NONE),
    Fact("Reshape", fuses=True, moved_past=True, rounding=_NONE),
    Fact("Slice", fuses=True, moved_past=True, rounding=_NONE),
    Fact("Squeeze", fuses=True, moved_past=True, rounding=_NONE),
    Fact("Transpose", fuses=True, moved_past=True, rounding=_NONE),
    Fact("Unsqueeze", fuses=True, moved_past=True, rounding=_NONE),
    # removed or swallowed
    Fact("Cast", removed=True, rounding=_NONE, converts=Conversion.TYPES, unpacks=_PACKED),
    Fact("Dropout", removed=True, rounding=_NONE),
    Fact("Expand", fuses=True, removed=True, rounding=_NONE),
    Fact("Identity", removed=True, rounding=_NONE),
    Fact("Clip", swallowed=True, rounding=_NONE),
    Fact("Relu", swallowed=True, rounding=_NONE),
    # nothing of that; some lack kernels on integers
    Fact("Max", rounding=_NONE),
    Fact("Min", rounding=_NONE),
    Fact("NonZero", lacks=_INT8, results=ir.DataType.INT64),
    Fact("SpaceToDepth", rounding=_NONE),
    Fact("TopK", rounding=_NONE),
    Fact("Trilu", rounding=_NONE, lacks=_BOTH),
    Fact("Unique", rounding=_NONE, lacks=frozenset({UINT8})),
    *(
        Fact(name, lacks=_BOTH)
        for name in (
            "Col2Im",
            "Einsum",
            "EyeLike",
            "GridSample",
            "OneHot",
            "RandomNormalLike",
            "RandomUniformLike",
            "SplitToSequence",
        )
    ),
    # rounding alone
    *(Fact(name, rounding=_ONCE) for name in ("Div", "Sqrt", "Sub")),
    *(
        Fact(name, rounding=_NONE)
        for name in (
            "Abs",
            "Bernoulli",
            "CastLike",
            "Ceil",
            "CenterCropPad",
            "Compress",
            "Constant",
            "ConstantOfShape",
            "ExpandDims",
            "Floor",
            "GatherND",
            "GlobalMaxPool",
            "Hardmax",
            "Neg",
            "Pad",
            "Round",
            "Sign",
            "ThresholdedRelu",
            "UnfoldTensor",
        )
    ),
    # results of a type of their own
    *(
        Fact(name, results=ir.DataType.BOOL)
        for name in (
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "IsAllFinite",
            "IsInf",
            "IsNaN",
            "Less",
            "LessOrEqual",
            "OptionalHasElement",
            "RegexFullMatch",
        )
    ),
    *(
        Fact(name, results=ir.DataType.INT64)
        for name in ("ArgMin", "NonMaxSuppression", "SequenceLength")
    ),
    *(Fact(name, results=ir.DataType.INT64, on_data=False) for name in ("Shape", "Size")),
    *(Fact(name, on_data=False) for name in ("If", "Loop", "Scan")),
    Fact("DynamicTimeWarping", results=ir.DataType.INT32),
    *(
        Fact(name, results=ir.DataType.FLOAT)
        for name in ("NGramRepeatBlock", "TfIdfVectorizer", "WordConvEmbedding")
    ),
    # on integers by definition
    Fact("QuantizeLinear", rounding=_NONE, converts=Conversion.TO_INTEGERS),
    Fact("DequantizeLinear", rounding=_NONE, converts=Conversion.FROM_INTEGERS),
    Fact("DynamicQuantizeLinear", converts=Conversion.TO_INTEGERS, results=UINT8),
    *(
        Fact(name, on_integers=True, rounding=_NONE, results=ir.DataType.INT32)
        for name in ("ConvInteger", "MatMulInteger", "MatMulInteger16")
    ),
    *(
        Fact(name, on_integers=True, rounding=_NONE)
        for name in (
            "QGemm",
            "QLinearAdd",
            "QLinearAveragePool",
            "QLinearConcat",
            "QLinearConv",
            "QLinearGlobalAveragePool",
            "QLinearLeakyRelu",
            "QLinearMatMul",
            "QLinearMul",
            "QLinearReduceMean",
            "QLinearSigmoid",
            "QLinearSoftmax",
            "QLinearWhere",
        )
    ),
    *(
        Fact(name, on_integers=True)
        for name in ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulNBits")
    ),
    *(
        Fact(name, on_integers=True, results=ir.DataType.FLOAT)
        for name in ("MatMulIntegerToFloat", "QAttention", "QEmbedLayerNormalization")
    ),
)
"""Every record; of one operator, each for versions of its own."""

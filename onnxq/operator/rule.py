"""A rule says as data how a node is quantized: which tensors, which precisions, small examples.

`Float` in place of a rule says why a node stays in float.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from onnxq.core.arrays import Array
from onnxq.core.reason import Reason  # the codec reads annotations at run time
from onnxq.core.saved import Key, OpenBounds
from onnxq.operator.call import AttributeValue
from onnxq.operator.precision import Precision
from onnxq.operator.reasons import OperatorLimit


class OpCategory(enum.Enum):
    """How an operator's integer form pays, which decides when `prepare` chooses it."""

    COMPUTE = "compute"
    """Multiplies and adds (Conv, MatMul, of two activations too): quantized where it can be."""
    ELEMENTWISE = "elementwise"
    """Cheap per element (Add, Sigmoid, GlobalAveragePool): quantized when an input is in integers
    already."""
    MOVEMENT = "movement"
    """Copies or selects (Reshape, MaxPool): outputs share the qparams of what they copy."""
    CLAMP = "clamp"
    """Bounds its input (Relu, Clip): folded into the Q before it, else a Clip on the integers."""


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """A constant input that is quantized ahead of time; scale has one entry per w.shape[axis]."""

    slot: int
    axis: int


@dataclass(frozen=True, slots=True)
class Rule:
    """Which tensors of one node are quantized, and what their qparams depend on.

    Attributes:
        category: when the integer form pays.
        activations: input slots that hold activations.
        weight: the constant weight, where the operator has one.
        bias: input slot whose constant becomes int32 at scale x_scale * w_scale, zero point 0.
        outputs: output slots that hold results in float32 (or integers, in integers).
        shares_qparams: outputs have the qparams of the activation inputs (one group for all).
        needs_output: ONNX Runtime has the integer kernel only with a Q behind it (Conv); without
            it, a result that no integer node reads is left in float32 (Gemm).
        output_range: real interval for 8-bit integers of a result that is bounded whatever the
            input is (Sigmoid: 0 to 1); None, or wider integers: it is observed.
        clamp: for OpCategory.CLAMP, the real bounds; -inf or inf for none.
        precision: INT8; or FLOAT_BETWEEN_QDQ where ONNX Runtime leaves DQ -> op -> Q as it is.
        lowered: `lower` writes the nodes: ONNX Runtime has an integer kernel and does not fuse.
        saturating_pairs: products of two integers are summed in pairs in int16 on x86 without VNNI,
            so that weights beyond +-64 can saturate (depthwise convolutions are exempt).
        pair_axes: axes of the weight, all but its channels', in the order in which the products of
            a sum are added, the fastest last; neighbours (2k, 2k + 1) are a pair. Empty: any two
            weights of a channel may be one.
        channelwise: each row of the weight sees one channel of the input, in order (a depthwise
            convolution): a scale of a channel can be undone in the rows that see it.
        shrinks: it gives fewer elements than it reads: behind float nodes it stays float, and
            integers are made of its result.
        named_only: why it stays float unless the qconfig names it; empty: it need not be named.
        selects: it takes the largest or the smallest of several numbers: the data beside the
            infinities, which are there for that.
    """

    category: OpCategory
    activations: tuple[int, ...] = (0,)
    weight: WeightSlot | None = None
    bias: int | None = None
    outputs: tuple[int, ...] = (0,)
    shares_qparams: bool = False
    needs_output: bool = True
    output_range: tuple[float, float] | None = None
    clamp: Annotated[tuple[float, float] | None, OpenBounds()] = None
    precision: Precision = Precision.INT8
    lowered: bool = False
    saturating_pairs: bool = False
    pair_axes: tuple[int, ...] = ()
    channelwise: bool = False
    shrinks: bool = False
    named_only: str = ""
    selects: bool = field(default=False, compare=False)

    @property
    def is_fused(self) -> bool:
        """Whether ONNX Runtime makes an integer kernel of DQ -> op -> Q."""
        return self.precision is Precision.INT8 and not self.lowered


@dataclass(frozen=True, slots=True)
class Float:
    """A node stays in float.

    Attributes:
        reason: why.
    """

    reason: Annotated[Reason, Key("float")]

    @classmethod
    def because(cls, said: str) -> Float:
        """Float by a limit of the operator, or of its kernel, in its author's words."""
        return cls(OperatorLimit(said))

    def __str__(self) -> str:
        return self.reason.words


@dataclass(frozen=True, slots=True)
class DynamicWeight:
    """A constant input that dynamic quantization stores as integers.

    Attributes:
        slot: of the node.
        axis: w.shape[axis] has one scale per entry, in the float model's layout; None: one scale.
        perm: axes of the float weight in the order in which the integers are stored (np.transpose);
            None: as they are.
        few_rows: its matrix product has few rows at a time, whatever the input's shape (a step of a
            recurrence), so that a scale per column costs time; objective "speed" may give it one.
    """

    slot: int
    axis: int | None
    perm: tuple[int, ...] | None = None
    few_rows: bool = False


@dataclass(frozen=True, slots=True)
class DynamicRule:
    """Which weights of a node dynamic quantization can store as integers, and how it can then run.

    Attributes:
        weights: all of the node's.
        precisions: that `lower_dynamic` can write, the usual one first.
        saturating_pairs: as in Rule, for Precision.DYNAMIC_INT8.
        missing: why the operator's usual form is not among them; empty: it is.
        not_rows: axes of the activation, counted from behind, along which no rows of the matrix
            product lie: the one that is summed over, and the steps of a recurrence, which are
            products of their own.
        min_bits: of the narrowest integers in blocks that `lower_dynamic` can write.
        no_float_kernel: ONNX Runtime does not run the float node, so that nothing is slower.
        measured_as: op type under which a target has the speedups of such a node; empty: its own.
    """

    weights: tuple[DynamicWeight, ...]
    precisions: tuple[Precision, ...]
    saturating_pairs: bool = False
    missing: str = ""
    not_rows: tuple[int, ...] = (-1,)
    min_bits: int = 2
    no_float_kernel: bool = False
    measured_as: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A small example of a node, for the contract test.

    Attributes:
        name: unique within the operator; a claim or the nasty thing about it.
        inputs: one array per input slot, None for an absent one. float32 where quantized.
        constants: input slots that are initializers; the others are graph inputs.
        attributes: of the node.
        outputs: number of outputs.
        opset: ai.onnx opset of the model.
    """

    name: str
    inputs: tuple[Array | None, ...]
    constants: tuple[int, ...] = ()
    attributes: Mapping[str, AttributeValue] | None = None
    outputs: int = 1
    opset: int = 21

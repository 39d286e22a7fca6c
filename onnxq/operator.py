"""The contract that a file in operators/ fulfils, and what a plan says of one node.

An `Operator` is one of the float model. It states as data (`Rule`) which of its tensors are
quantized and how these depend on each other. Placement, planning and the QDQ rewrite read the rule;
none of them knows an operator by name. An `IntegerOperator` is one that ONNX Runtime runs on codes
(QLinearConv): only a kernel that reproduces it, and cases.

Over 400 lines: it is what an author of an operator reads, in one place; half of it is docstrings.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx_ir.tape import Tape

    from onnxq.qparams import QParams
    from onnxq.targets.accumulation import Accumulator, Arithmetic, Overflows

Array = npt.NDArray[np.generic]


class Role(enum.Enum):
    """How an operator's integer form pays, which decides when `prepare` chooses it."""

    COMPUTE = "compute"
    """Multiplies and adds (Conv, MatMul, of two activations too): quantized where it can be."""
    ELEMENTWISE = "elementwise"
    """Cheap per element (Add, Sigmoid, GlobalAveragePool): quantized when an input is in integers
    already."""
    MOVEMENT = "movement"
    """Copies or selects codes (Reshape, MaxPool): outputs share the qparams of what they copy."""
    CLAMP = "clamp"
    """Bounds its input (Relu, Clip): folded into the Q before it, else a Clip on the codes."""


class Form(enum.Enum):
    """How the QDQ rewrite writes a node that runs in integers."""

    QDQ = "qdq"
    """DQ -> op -> Q: ONNX Runtime fuses it."""
    CODES = "codes"
    """What `lower` writes: ONNX Runtime has an integer kernel but no fusion for it."""
    FLOAT = "float"
    """DQ -> op -> Q, which ONNX Runtime leaves as it is: it computes in float32 between codes."""


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """A constant input that is quantized ahead of time; scale has one entry per w.shape[axis]."""

    slot: int
    axis: int


@dataclass(frozen=True, slots=True)
class Rule:
    """Which tensors of one node are quantized, and what their qparams depend on.

    Attributes:
        role: when the integer form pays.
        activations: input slots that hold activations.
        weight: the constant weight, where the operator has one.
        bias: input slot whose constant becomes int32 at scale x_scale * w_scale, zero point 0.
        outputs: output slots that hold results in float32 (or codes, in integers).
        shares_qparams: outputs have the qparams of the activation inputs (one group for all).
        needs_output: ONNX Runtime has the integer kernel only with a Q behind it (Conv); without
            it, a result that no integer node reads is left in float32 (Gemm).
        output_range: real interval for 8-bit codes of a result that is bounded whatever the input
            is (Sigmoid: 0 to 1); None, or wider codes: it is observed.
        clamp: for Role.CLAMP, the real bounds; -inf or inf for none.
        form: how the QDQ rewrite writes it.
        saturating_pairs: products of two codes are summed in pairs in int16 on x86 without VNNI, so
            that weights beyond +-64 can saturate (depthwise convolutions are exempt).
        pair_axes: axes of the weight, all but its channels', in the order in which the products of
            a sum are added, the fastest last; neighbours (2k, 2k + 1) are a pair. Empty: any two
            weights of a channel may be one.
        channelwise: each row of the weight sees one channel of the input, in order (a depthwise
            convolution): a factor on a channel can be undone in the rows that see it.
        shrinks: it gives fewer elements than it reads: behind float nodes it stays float, and codes
            are made of its result.
        named_only: why it stays float unless the qconfig names it; empty: it need not be named.
    """

    role: Role
    activations: tuple[int, ...] = (0,)
    weight: WeightSlot | None = None
    bias: int | None = None
    outputs: tuple[int, ...] = (0,)
    shares_qparams: bool = False
    needs_output: bool = True
    output_range: tuple[float, float] | None = None
    clamp: tuple[float, float] | None = None
    form: Form = Form.QDQ
    saturating_pairs: bool = False
    pair_axes: tuple[int, ...] = ()
    channelwise: bool = False
    shrinks: bool = False
    named_only: str = ""


@dataclass(frozen=True, slots=True)
class Float:
    """A node stays in float.

    Attributes:
        reason: in words that a user understands.
        unbounded: a constant operand puts numbers that stand for infinity into the result, so that
            no node behind can have a scale for it.
    """

    reason: str
    unbounded: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The numbers of one node that runs in integers.

    Attributes:
        inputs: one entry per input slot; None where the input is not quantized (absent, a shape).
            A bias has int32 qparams at x_scale * w_scale.
        outputs: one entry per output slot; None where the result stays in float32.
    """

    inputs: tuple[QParams | None, ...]
    outputs: tuple[QParams | None, ...]


class DynamicForm(enum.Enum):
    """How a node runs whose weights are quantized ahead of time, and whose activations are not."""

    INTEGER = "integer"
    """Activations are quantized when the model runs; the products are integers."""
    BLOCKS = "blocks"
    """Weights alone: DequantizeLinear before MatMul, which ONNX Runtime turns into MatMulNBits."""
    STORED = "stored"
    """Weights are integers in the file, dequantized once or as they are read; computed in float."""
    HALF = "half"
    """Weights are float16 in the file, computed in float32."""


@dataclass(frozen=True, slots=True)
class DynamicWeight:
    """A constant input that dynamic quantization stores as integers.

    Attributes:
        slot: of the node.
        axis: w.shape[axis] has one scale per entry, in the float model's layout; None: one scale.
        perm: axes of the float weight in the order in which the codes are stored (np.transpose);
            None: as they are.
        few_rows: its product has few rows at a time, whatever the input's shape (a step of a
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
        forms: that `lower_dynamic` can write, the usual one first.
        saturating_pairs: as in Rule, for DynamicForm.INTEGER.
        missing: why the operator's usual form is not among them; empty: it is.
        not_rows: axes of the activation, counted from behind, along which no rows of a product lie:
            the one that is summed over, and the steps of a recurrence, which are products of
            their own.
        min_bits: of the narrowest codes that `lower_dynamic` can write.
        no_float_kernel: ONNX Runtime does not run the float node, so that nothing is slower.
        measured_as: op type under which a target keeps the gains of such a node; empty: its own.
    """

    weights: tuple[DynamicWeight, ...]
    forms: tuple[DynamicForm, ...]
    saturating_pairs: bool = False
    missing: str = ""
    not_rows: tuple[int, ...] = (-1,)
    min_bits: int = 2
    no_float_kernel: bool = False
    measured_as: str = ""


@dataclass(frozen=True, slots=True)
class DynamicNodePlan:
    """The numbers of one node that is quantized dynamically.

    Attributes:
        form: one of the rule's.
        qparams: one entry per weight of the rule, in the layout in which its codes are stored; None
            for DynamicForm.HALF.
    """

    form: DynamicForm
    qparams: tuple[QParams | None, ...]


AttributeValue = int | float | str | bytes | Sequence[int] | Sequence[float] | Sequence[str] | Array


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


class Operator(ABC):
    """One ONNX operator: its quantization rule, integer lowering, reference kernel and cases."""

    op_type: ClassVar[str]
    domain: ClassVar[str] = ""

    @abstractmethod
    def rule(self, node: ir.Node) -> Rule | Float:
        """The rule for this node, or why this node cannot run in integers.

        May look at attributes, at the constant values, types and ranks of inputs; never at
        neighbours.
        """

    def fused_rule(self, node: ir.Node) -> Rule | Float:
        """The rule of a node between DQ and Q: ONNX Runtime may fuse what `rule` leaves float."""
        return self.rule(node)

    @abstractmethod
    def cases(self) -> Iterable[Case]:
        """Small examples, the nasty ones included."""

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Outputs of the integer form (QLinear*, com.microsoft, plain op on codes), written.

        Args:
            tape: records the new nodes and initializers.
            node: the float node; its attributes are read.
            plan: qparams per slot.
            inputs: per input slot, the integer value where plan.inputs has qparams, else the value
                as it is.
        Raises:
            NotImplementedError: this operator has no lowering (see `has_lowering`).
        """
        # optional: callers ask has_lowering first
        raise NotImplementedError(f"{self.op_type} has no integer lowering")

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """The integer arithmetic in NumPy, bit-equal to ONNX Runtime: integers in, integers out.

        Args:
            inputs: per input slot, integers where plan.inputs has qparams, else the array as it is.
            plan: qparams per slot.
            attributes: of the float node.
        Raises:
            NotImplementedError: this operator has no kernel yet (see `has_kernel`).
        """
        # optional: callers ask has_kernel first
        raise NotImplementedError(f"{self.op_type} has no reference kernel")

    def misfit(self, plan: NodePlan) -> str:
        """Why ONNX Runtime's kernel refuses these qparams when it runs; empty: it does not."""
        return ""

    def agrees(self, plan: NodePlan, attributes: Mapping[str, AttributeValue]) -> bool:
        """Whether machines that round sums of codes otherwise give the same for every input.

        Where they do not, other scales may: `plan` looks for some next to these. Operators that
        write a QLinearAdd ask Add.

        Args:
            plan: qparams per slot.
            attributes: of the float node.
        """
        return True

    def dynamic_rule(self, node: ir.Node) -> DynamicRule | Float:
        """What dynamic quantization can do with this node, or why nothing.

        May look at what `rule` may look at.
        """
        return Float(f"{self.op_type} has no weights that dynamic quantization could store")

    def lower_dynamic(
        self,
        tape: Tape,
        node: ir.Node,
        plan: DynamicNodePlan,
        inputs: Sequence[ir.Value | None],
    ) -> Sequence[ir.Value]:
        """Outputs of the dynamically quantized form, written: float in, float out.

        Args:
            tape: records the new nodes and initializers.
            node: the float node; its attributes are read.
            plan: form and qparams of the weights.
            inputs: per input slot: for a weight of `dynamic_rule`, the initializer of its codes
                (float16 for DynamicForm.HALF) in its stored layout; else the value as it is.
        Raises:
            NotImplementedError: this operator is not quantized dynamically.
        """
        # optional: dynamic_rule is Float unless a subclass has this too
        raise NotImplementedError(f"{self.op_type} has no dynamically quantized form")

    @classmethod
    def has_lowering(cls) -> bool:
        """Whether `lower` is written."""
        return cls.lower is not Operator.lower

    @classmethod
    def has_dynamic_rule(cls) -> bool:
        """Whether `dynamic_rule` is written."""
        return cls.dynamic_rule is not Operator.dynamic_rule

    @classmethod
    def has_kernel(cls) -> bool:
        """Whether `kernel` is written."""
        return cls.kernel is not Operator.kernel


class IntegerOperator(ABC):
    """An operator that ONNX Runtime runs on codes, scales and zero points being inputs of the node.

    Attributes:
        op_type: "QLinearConv".
        domains: every domain in which that name means this arithmetic.
        weights: slots of what is usually constant in its products; () where it has none.
    """

    op_type: ClassVar[str]
    domains: ClassVar[tuple[str, ...]] = ("",)
    weights: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """What ONNX Runtime computes: one array per output, all of them.

        Args:
            inputs: of the node, None for absent ones.
            attributes: of the node.
        Raises:
            ShapeError: shapes or dtypes do not fit together, a scale is not positive, ...
            UnsupportedError: ONNX Runtime refuses it too, or its result is an overflow.
        """

    @abstractmethod
    def cases(self) -> Iterable[Case]:
        """Small examples of the node as it is, the nasty ones included."""

    def kernel_on(
        self,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, AttributeValue],
        accumulator: Accumulator,
    ) -> tuple[Array, ...]:
        """As `kernel`, on a machine that adds pairs of products in int16.

        Args:
            inputs: of the node; what ONNX Runtime has as constants decides which of its kernels
                run, and weights are taken to be constant.
            attributes: of the node.
            accumulator: what such sums become.
        """
        # operators without products of codes compute the same on every machine
        return self.kernel(inputs, attributes)

    def risks(
        self,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, AttributeValue],
        arithmetic: Arithmetic,
    ) -> Overflows | None:
        """Pairs of weights whose sums leave int16 with some activations; None: there are none.

        Args:
            inputs: constants as they are; arrays without elements, of the right type, in place of
                what is known at run time alone; None for absent ones.
            attributes: of the node.
            arithmetic: of the machine.
        """
        return None

    @classmethod
    def has_products(cls) -> bool:
        """Whether `kernel_on` is written: the result may depend on the machine."""
        return cls.kernel_on is not IntegerOperator.kernel_on

    def serves(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> bool:
        """Whether these inputs are the kernel's matter; a plain operator on floats is not."""
        return True

    def bound(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> Array | None:
        """Largest difference from ONNX Runtime, broadcast to output 0; None: equal bit for bit.

        Only for what adds floats in an order that depends on the machine.
        """
        return None

    def bound_on(
        self,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, AttributeValue],
        accumulator: Accumulator,
    ) -> Array | None:
        """As `bound`, of `kernel_on`."""
        # that of other sums of codes is the same, unless their size is in it
        return self.bound(inputs, attributes)


registry: dict[tuple[str, str], Operator] = {}
"""(domain, op_type) -> operator; filled by `register`, read through onnxq.catalog."""

integer_registry: dict[tuple[str, str], IntegerOperator] = {}
"""(domain, op_type) -> operator on codes; filled by `register_integer`."""

OperatorClass = TypeVar("OperatorClass", bound=type[Operator])


def register(cls: OperatorClass) -> OperatorClass:
    """Class decorator: makes the operator known under its (domain, op_type)."""
    key = (cls.domain, cls.op_type)
    if key in registry:
        raise ValueError(f"operator {key} is registered twice")
    registry[key] = cls()
    return cls


IntegerClass = TypeVar("IntegerClass", bound=type[IntegerOperator])


def register_integer(cls: IntegerClass) -> IntegerClass:
    """Class decorator: makes the operator on codes known in each of its domains."""
    operator = cls()
    for domain in cls.domains:
        key = (domain, cls.op_type)
        if key in integer_registry:
            raise ValueError(f"integer operator {key} is registered twice")
        integer_registry[key] = operator
    return cls

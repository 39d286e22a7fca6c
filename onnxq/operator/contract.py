"""Contracts that a file in operators/ fulfils: one class, or one decorated formula.

An `Operator` is one of the float model. It states as data (`Rule`) which of its tensors are
quantized and how these depend on each other. Quantizer insertion, planning and the QDQ rewrite read
the rule; the one operator that they look for by name is the Add of a bias behind a MatMul, which
ONNX Runtime fuses. An `IntegerOperator` is one that ONNX Runtime runs on integers (QLinearConv):
only a kernel that reproduces it, and cases.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

import onnx_ir as ir

from onnxq.core.arrays import Array, Reals
from onnxq.operator.call import Call
from onnxq.operator.integer_call import IntegerCall
from onnxq.operator.response import Response
from onnxq.operator.rule import Case, DynamicRule, Float, Rule
from onnxq.operator.site import DynamicSite, Site
from onnxq.operator.unfolded import Unfolded
from onnxq.targets.accumulation import Accumulator, Overflows, Pairs, SaturationMode, risks


class Operator(ABC):
    """One ONNX operator: its quantization rule, integer lowering, reference kernel and cases."""

    op_type: str
    domain: str = ""
    gives_means: ClassVar[bool] = False
    """Whether its results are means of numbers of input 0."""

    @abstractmethod
    def rule(self, node: ir.Node) -> Rule | Float:
        """The rule for this node, or why this node cannot run in integers.

        May look at attributes, at the constant values, types and ranks of inputs; never at
        neighbours.
        """

    def fused_rule(self, node: ir.Node) -> Rule | Float:
        """The rule of a node between DQ and Q: ONNX Runtime may fuse what `rule` leaves float."""
        return self.rule(node)

    def responses(self, node: ir.Node) -> tuple[Response, ...]:
        """Responses to errors of its inputs; empty: errors are not followed behind it.

        May look at what `rule` may look at.
        """
        return ()

    def gives_positive(self, node: ir.Node) -> bool:
        """Whether channels of its result have means above 0, whatever it reads: by its range."""
        rule = self.rule(node)
        if not isinstance(rule, Rule):
            return False
        return any(
            bounds is not None and bounds[0] >= 0 for bounds in (rule.clamp, rule.output_range)
        )

    @property
    def saved_on_integers(self) -> float:
        """Nanoseconds per element that integers save over the float operator; 0: not measured.

        Between nodes on integers, on the machine of `targets` that has a throughput.
        """
        return 0.0

    def unfolded(self, node: ir.Node) -> Unfolded | None:
        """The node as a matrix product, for PTQ algorithms; None: it is none.

        Asked of nodes whose rule has a weight. May look at what `rule` may look at.
        """
        return None

    def scaled(self, node: ir.Node, scale: Reals) -> tuple[Mapping[int, Reals], ...]:
        """Ways to scale the result: the scale of each input, by slot.

            scale * f(x0, x1, ...) = f(s0 * x0, s1 * x1, ...),    s = 1 where a slot is missing

        Args:
            node: of one result that matters.
            scale: above 0, of the result's rank; of size 1 along axes where it does not vary.
        Returns:
            One mapping per way, the usual one first; none: no scales of inputs give that.
        """
        return ()

    def undone(self, node: ir.Node, scale: Reals) -> Mapping[int, Reals] | None:
        """Scales of constant inputs that leave the result as it is where input 0 is divided.

            f(x / scale, s1 * w, ...) = f(x, w, ...)

        Args:
            node: whose input 0 is an activation.
            scale: above 0, of that input's rank, as in `scaled`.
        Returns:
            Scale by slot; None: no constant undoes that.
        """
        return None

    @abstractmethod
    def cases(self) -> Iterable[Case]:
        """Small examples, the nasty ones included."""

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Outputs of the integer form (QLinear*, com.microsoft, plain op on integers), written.

        Raises:
            NotImplementedError: this operator has no lowering (see `has_lowering`).
        """
        # optional: callers ask has_lowering first
        raise NotImplementedError(f"{self.op_type} has no integer lowering")

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """The integer arithmetic in NumPy, bit-equal to ONNX Runtime: integers in, integers out.

        Raises:
            NotImplementedError: this operator has no kernel yet (see `has_kernel`).
        """
        # optional: callers ask has_kernel first
        raise NotImplementedError(f"{self.op_type} has no reference kernel")

    def misfit(self, call: Call) -> str:
        """Why ONNX Runtime's kernel refuses these qparams when it runs; empty: it does not.

        Args:
            call: of no inputs: plan and attributes say it.
        """
        return ""

    def agrees(self, call: Call) -> bool:
        """Whether machines that round sums and products of integers otherwise agree.

        For every input. Where they do not, other scales may: `plan` looks for some next to these.
        Operators that write a QLinearAdd or QLinearMul ask Add or Mul.

        Args:
            call: of no inputs but constants that are no integers: plan and attributes say the rest.
        """
        return True

    def agrees_with_itself(self, call: Call) -> bool:
        """Whether the order in which a machine takes the operands makes no difference to it.

        Args:
            call: as of `agrees`.
        """
        return True

    def dynamic_rule(self, node: ir.Node) -> DynamicRule | Float:
        """The weights that dynamic quantization can store, and in which precisions; or why none.

        May look at what `rule` may look at.
        """
        return Float.because(f"{self.op_type} has no weights that dynamic quantization could store")

    def lower_dynamic(self, site: DynamicSite) -> Sequence[ir.Value]:
        """Outputs of the dynamically quantized form, written: float in, float out.

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
    """An operator that ONNX Runtime runs on integers; scales and zero points are its inputs.

    Attributes:
        op_type: "QLinearConv".
        domains: every domain in which that name means this arithmetic.
        weights: slots of what is usually constant in its products; () where it has none.
    """

    op_type: ClassVar[str]
    domains: ClassVar[tuple[str, ...]] = ("",)
    weights: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Arrays that ONNX Runtime computes: one per output, all of them.

        Raises:
            ShapeError: shapes or dtypes do not fit together, a scale is not positive, ...
            UnsupportedError: ONNX Runtime refuses it too, or its result is an overflow.
        """

    @abstractmethod
    def cases(self) -> Iterable[Case]:
        """Small examples of the node as it is, the nasty ones included."""

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        """Results of `kernel` on a machine that adds pairs of products in int16.

        Args:
            call: which inputs ONNX Runtime has as constants decides which of its kernels run;
                weights are taken to be constant.
            accumulator: what such sums become.
        """
        # operators without products of integers compute the same on every machine
        return self.kernel(call)

    def risks(self, call: IntegerCall, saturation_mode: SaturationMode) -> Overflows | None:
        """Pairs of weights whose sums leave int16 with some activations; None: there are none.

        Args:
            call: constants as they are; arrays without elements, of the right type, in place of
                what is known at run time alone.
            saturation_mode: of the machine.
        """
        return risks(self.pairs(call, saturation_mode), saturation_mode)

    def pairs(self, call: IntegerCall, saturation_mode: SaturationMode) -> Pairs | None:
        """Constant weights whose products a machine adds in int16; None: it adds all in int32.

        Args:
            call: as of `risks`.
            saturation_mode: of the machine.
        """
        return None

    @classmethod
    def depends_on_machine(cls) -> bool:
        """Whether `kernel_on` is written: the result may depend on the machine."""
        return cls.kernel_on is not IntegerOperator.kernel_on

    def serves(self, call: IntegerCall) -> bool:
        """Whether these inputs are the kernel's matter; a plain operator on floats is not."""
        return True

    def bound(self, call: IntegerCall) -> Array | None:
        """Largest difference from ONNX Runtime, broadcast to output 0; None: equal bit for bit.

        Only for what adds floats in an order that depends on the machine.
        """
        return None

    def bound_on(self, call: IntegerCall, accumulator: Accumulator) -> Array | None:
        """Largest difference of `kernel_on` from ONNX Runtime on that machine, as `bound`."""
        # that of other sums of integers is the same, unless their size is in it
        return self.bound(call)


registry: dict[tuple[str, str], Operator] = {}
"""(domain, op_type) -> operator; filled by `enter`, read through onnxq.catalog."""

integer_registry: dict[tuple[str, str], IntegerOperator] = {}
"""(domain, op_type) -> operator on integers; filled by `register_integer`."""


def enter(operator: Operator) -> None:
    """Makes the operator known under its (domain, op_type)."""
    key = (operator.domain, operator.op_type)
    if key in registry:
        raise ValueError(f"operator {key} is registered twice")
    registry[key] = operator


OperatorClass = TypeVar("OperatorClass", bound=type[Operator])


def register(cls: OperatorClass) -> OperatorClass:
    """Class decorator: makes the operator known under its (domain, op_type)."""
    enter(cls())
    return cls


IntegerClass = TypeVar("IntegerClass", bound=type[IntegerOperator])


def register_integer(cls: IntegerClass) -> IntegerClass:
    """Class decorator: makes the operator on integers known in each of its domains."""
    operator = cls()
    for domain in cls.domains:
        key = (domain, cls.op_type)
        if key in integer_registry:
            raise ValueError(f"integer operator {key} is registered twice")
        integer_registry[key] = operator
    return cls

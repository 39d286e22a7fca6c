"""Element-wise sum of integers."""

from collections.abc import Iterable, Sequence

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.site import MICROSOFT
from onnxq.operators._divided import divided_sum
from onnxq.operators._integer_pairs import PairFunction, noted, possible_pairs
from onnxq.operators._machine_sums import fixed_sum, unfused_sum, unfused_sum_of_scalar
from onnxq.operators._qlinear import binary, binary_cases
from onnxq.operators.add import Add, add_integers, scalar_inside, sums
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationMode


@register_integer
class QLinearAdd(IntegerOperator):
    """C = A + B of integers: A, A_scale, A_zp, B, B_scale, B_zp, C_scale, C_zp.

    com.microsoft; broadcasts. Arithmetic: see Add; on other machines, _machine_sums and _divided.
    """

    op_type = "QLinearAdd"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        operands, plan = binary(call)
        return Add().kernel(call.planned(operands, plan))

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        """Integers of C, on a machine that may round otherwise."""
        exact = self.kernel(call)
        if not accumulator.saturation_mode.adds_integers_otherwise:
            return exact
        operands, plan = binary(call)
        pair_sum = _pair_sums(accumulator.saturation_mode)[_has_scalar(operands)]
        return noted(call, exact, sums(call.planned(operands, plan), pair_sum), accumulator)

    def risks(self, call: IntegerCall, saturation_mode: SaturationMode) -> Overflows | None:
        """Pairs of integers whose sums are rounded otherwise with these scales."""
        if not saturation_mode.adds_integers_otherwise:
            return None
        return possible_pairs(call, add_integers, _pair_sums(saturation_mode))

    def cases(self) -> Iterable[Case]:
        """The binary cases; and scales for which 931 pairs of 65,536 differ without fused adds."""
        return binary_cases(0.0481, 0.0845, 0.0468)


def _pair_sums(saturation_mode: SaturationMode) -> tuple[PairFunction, PairFunction]:
    """Ways to add integers: two arrays, or an array and a scalar."""
    if saturation_mode.divides:
        return divided_sum, divided_sum
    if saturation_mode.fixed_point:
        return fixed_sum, fixed_sum
    return unfused_sum, unfused_sum_of_scalar


def _has_scalar(operands: Sequence[Array]) -> bool:
    """Whether ONNX Runtime's inner loop takes one of them as a scalar."""
    a, b = (x.shape for x in operands)
    return scalar_inside(a, b) or scalar_inside(b, a)

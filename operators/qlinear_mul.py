"""Element-wise product of integers."""

from collections.abc import Iterable

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.site import MICROSOFT
from onnxq.operators._divided import divided_product
from onnxq.operators._integer_pairs import PairFunction, noted, possible_pairs
from onnxq.operators._machine_sums import fused_product
from onnxq.operators._qlinear import binary, binary_cases
from onnxq.operators.mul import Mul, multiply_integers, products
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationMode


@register_integer
class QLinearMul(IntegerOperator):
    """C = A * B of integers: A, A_scale, A_zp, B, B_scale, B_zp, C_scale, C_zp.

    com.microsoft; broadcasts. Arithmetic: see Mul; on ARM, _machine_sums; in WebAssembly, _divided.
    """

    op_type = "QLinearMul"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        operands, plan = binary(call)
        return Mul().kernel(call.planned(operands, plan))

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        """Integers of C, on a machine that may round otherwise."""
        exact = self.kernel(call)
        product = _pair_product(accumulator.saturation_mode)
        if product is None:
            return exact
        return noted(call, exact, products(call.planned(*binary(call)), product), accumulator)

    def risks(self, call: IntegerCall, saturation_mode: SaturationMode) -> Overflows | None:
        """Pairs of integers whose products are rounded otherwise with these scales."""
        product = _pair_product(saturation_mode)
        return None if product is None else possible_pairs(call, multiply_integers, (product,))

    def cases(self) -> Iterable[Case]:
        """The binary cases; and scales that make ties, which ARM and WebAssembly take otherwise."""
        return binary_cases(0.1, 0.07, 0.14)


def _pair_product(saturation_mode: SaturationMode) -> PairFunction | None:
    """Way in which a machine multiplies integers; None: as x86 does."""
    if saturation_mode.divides:
        return divided_product
    return fused_product if saturation_mode.fixed_point else None

"""Every integer operator, as nodes that run on emulated machines."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.parts.trials import is_drawn, schema_inputs
from onnxq import catalog
from onnxq.errors import UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.targets.accumulation import Accumulator, SaturationMode
from tests.isa.machines import save_case
from tests.isa.products import Draw, products
from tests.operators import builder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onnxq.operator import Array, Case, IntegerOperator
    from onnxq.targets.accumulation import Note
    from tests.isa.machines import Machine

FILLS = ("uniform", "ends")
# Operators that compute floats behind their integer sums: on x86 bit by bit as the kernels, on ARM
# in another order. Largest difference, as a share of the largest result.
FLOATS = {
    "DynamicQuantizeMatMul": 2.0**-21,  # ARM rounds the product before it adds the bias
    "MatMulIntegerToFloat": 2.0**-21,
    "DynamicQuantizeLSTM": 2.0**-10,  # exp and tanh are other polynomials
    "QAttention": 2.0**-16,  # likewise, and the projections are rounded as those above
    "MatMulNBits": 2.0**-5,  # accuracy level 4: activations in int8, in blocks of the machine's own
}


@dataclass(frozen=True, slots=True, eq=False)
class NodeCase:
    """One node.

    Attributes:
        operator: of the node.
        domain: of the node.
        case: its inputs.
        name: of its files.
    """

    operator: IntegerOperator
    domain: str
    case: Case
    name: str

    @property
    def op_type(self) -> str:
        """Operator type of the node."""
        return self.operator.op_type

    def predicted(self, saturation_mode: SaturationMode, note: Note | None = None) -> list[Array]:
        """Outputs that a machine should compute; types that NumPy lacks as float32."""
        accumulator = Accumulator(saturation_mode, note)
        attributes = self.case.attributes or {}
        outputs = self.operator.kernel_on(
            IntegerCall(self.operator.op_type, self.case.inputs, attributes=attributes), accumulator
        )
        return [y.astype(np.float32) if _foreign(y) else y for y in outputs[: self.case.outputs]]

    def differing(
        self, got: Sequence[Array], machine: Machine, saturation_mode: SaturationMode | None = None
    ) -> int:
        """Elements of a machine's outputs that are not as predicted.

        Integers are compared exactly; floats too, but for what FLOATS and the operator's own bound
        allow.

        Args:
            got: the outputs.
            machine: that they are of.
            saturation_mode: what to predict; None: the machine's own.
        """
        kind = saturation_mode or machine.saturation_mode
        wanted = self.predicted(kind)
        kinds = [[(y.dtype, y.shape) for y in outputs] for outputs in (got, wanted)]
        assert kinds[0] == kinds[1], f"{self.name} on {machine}: {kinds}"
        attributes = self.case.attributes or {}
        bound = self.operator.bound_on(
            IntegerCall(self.operator.op_type, self.case.inputs, attributes=attributes),
            Accumulator(kind),
        )
        count = 0
        for slot, (y, other) in enumerate(zip(got, wanted, strict=True)):
            same = (y == other) | ((y != y) & (other != other))
            if y.dtype.kind == "f":
                distance = np.abs(y.astype(np.float64) - other.astype(np.float64))
                if bound is not None and slot == 0:
                    same |= distance <= bound
                if machine.saturation_mode is not SaturationMode.SATURATES:
                    share = FLOATS.get(self.op_type, 0.0)
                    same |= distance <= share * np.abs(other).max(initial=0)
            count += int(np.count_nonzero(~same))
        return count

    def save(self, folder: Path) -> None:
        """Writes it for a machine."""
        exact = self.operator.kernel(
            IntegerCall(
                self.operator.op_type, self.case.inputs, attributes=self.case.attributes or {}
            )
        )
        foreign = [i for i, y in enumerate(exact[: self.case.outputs]) if _foreign(y)]
        model = builder.integer_model(self.operator, self.domain, self.case, foreign)
        named = zip(builder.names(self.case), self.case.inputs, strict=True)
        feeds = {
            name: x
            for i, (name, x) in enumerate(named)
            if x is not None and i not in self.case.constants
        }
        save_case(folder, self.name, model.SerializeToString(), feeds)


def _foreign(y: Array) -> bool:
    return y.dtype.type.__module__ != "numpy"


def node_cases(fills: Sequence[str] = FILLS, seed: int = 0) -> Iterator[NodeCase]:
    """The operators' own cases, with other integers too; and `products`.

    Args:
        fills: of `products`, see there.
        seed: of the random integers.
    """
    for operator in catalog.all_integer_operators():
        for domain in operator.domains:
            for case in operator.cases():
                yield from _own(operator, domain, case, seed)
    for fill in fills:
        for op_type, domain, case in products(seed, fill):
            found = catalog.find_integer(op_type, domain)
            assert found is not None
            yield _named(found, domain, case, fill)


def _own(operator: IntegerOperator, domain: str, case: Case, seed: int) -> Iterator[NodeCase]:
    yield _named(operator, domain, case, "own")
    draw = Draw(zlib.crc32(f"{operator.op_type} {case.name} {seed}".encode()))
    schema = schema_inputs(operator.op_type, domain)
    for fill in FILLS if operator.depends_on_machine() else FILLS[:1]:
        inputs = tuple(
            draw.integers(x.shape, x.dtype.name, fill)
            if x is not None and x.dtype in (np.uint8, np.int8) and is_drawn(schema, i, x)
            else x
            for i, x in enumerate(case.inputs)
        )
        drawn = dataclasses.replace(case, inputs=inputs)
        try:
            operator.kernel(IntegerCall(operator.op_type, inputs, attributes=case.attributes or {}))
        except UnsupportedError:  # these would overflow an int32
            continue
        yield _named(operator, domain, drawn, fill)


def _named(operator: IntegerOperator, domain: str, case: Case, fill: str) -> NodeCase:
    label = f"{operator.op_type} {domain} {case.name} {fill}"
    plain = "".join(c if c.isalnum() else "-" for c in label)
    return NodeCase(operator, domain, case, f"{plain}-{zlib.crc32(label.encode()):08x}")

"""A Certificate: what sums of products in a quantized model reach for any input of its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.core.brief import brief
from onnxq.core.saved import Saved
from onnxq.errors import DifferenceError, listed
from onnxq.targets.accumulation import INT16_MAX

PROVED, SATURATES, UNKNOWN = "proved", "can saturate", "not bounded"
"""Verdicts: no input reaches the limits; some input does; the weights are computed at run time, or
the operator rounds otherwise on such machines."""
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """Largest sums of one node, attained by some integers of its inputs.

    Attributes:
        accumulator: largest |sum of products and bias|; None: not bounded.
        pair: largest |sum of two products| that the machine adds in int16; None: it adds none so,
            or it is not bounded.
        verdict: PROVED, SATURATES or UNKNOWN.
    """

    name: str
    op_type: str
    accumulator: int | None
    pair: int | None
    verdict: str

    @property
    def accumulator_share(self) -> float | None:
        """Share of int32's range; above 1, it wraps."""
        return None if self.accumulator is None else self.accumulator / INT32_MAX

    @property
    def pair_share(self) -> float | None:
        """Share of int16's range; above 1, it saturates or wraps."""
        return None if self.pair is None else self.pair / INT16_MAX


@dataclass(frozen=True, slots=True)
class OutputBound:
    """Largest error of an output beside exact integers, for any input.

    Attributes:
        bound: 0: every integer ahead of it is proved exact; None: no bound.
    """

    name: str
    bound: float | None


@dataclass(frozen=True, slots=True)
class MachineCertificate:
    """Certificates of machines of one saturation mode.

    Attributes:
        saturation_mode: an onnxq.targets.accumulation.SaturationMode's value.
    """

    targets: tuple[str, ...]
    saturation_mode: str
    nodes: tuple[NodeCertificate, ...]
    outputs: tuple[OutputBound, ...]

    @property
    def is_proved(self) -> bool:
        """Whether no input of any node reaches a limit."""
        return all(node.verdict == PROVED for node in self.nodes)


@dataclass(frozen=True)
class Certificate(Saved):
    """Which integer sums cannot leave their types on which machines, whatever the input.

    Attributes:
        machines: one entry per saturation mode among the targets.
    """

    FORMAT: ClassVar[str] = "onnxq certificate 1"
    NOUN: ClassVar[str] = "a certificate"
    ANEW: ClassVar[str] = "Run prove anew."

    model_hash: str
    machines: tuple[MachineCertificate, ...]

    def __repr__(self) -> str:
        return brief(self)

    @property
    def is_proved(self) -> bool:
        """Whether all machines are proved."""
        return all(machine.is_proved for machine in self.machines)

    def check(self) -> None:
        """Returns where no sum can leave its type on a named machine."""
        lines = [
            f"{', '.join(machine.targets)}: {listed(names)}"
            for machine in self.machines
            if (names := [node.name for node in machine.nodes if node.verdict != PROVED])
        ]
        if lines:
            raise DifferenceError(
                "sums of products are not proved to fit for any input:\n  "
                + "\n  ".join(lines)
                + "\nQuantize for `portable`, whose pairs fit on every machine."
            )

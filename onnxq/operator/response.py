"""Response of an operator to an error in one of its inputs, from quantization ahead of it.

Linear layers with a weight in their rule, and nodes that only move or bound data, need no response:
their rules suffice. Behind an operator without a response, errors are not followed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from onnxq.core.arrays import Array, Reals


@dataclass(frozen=True, slots=True)
class Linear:
    """The error of each of these inputs, times a number.

    Attributes:
        slots: of the inputs.
        amplification: mean of the squared numbers.
        offset: what is added to the products; None: not the same for all.
        sign: of the numbers; -1 where the inputs are subtracted.
    """

    slots: tuple[int, ...]
    amplification: float
    offset: float | None = 0.0
    sign: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A function of one input with nonlinear amplification: a small error may become a large one.

    Attributes:
        slot: of the input.
        function: of float64 arrays, element by element.
        exponent: p where the function is x^p; else None.
    """

    slot: int
    function: Callable[[Reals], Reals]
    exponent: float | None = None


@dataclass(frozen=True, slots=True)
class Normalizing:
    """Input 0 divided by its own deviation, so that small channels come out as large as others.

    Attributes:
        axis: the first axis that is averaged over; all behind it are, too.
        ch_axis: axis of the channels.
        groups: of channels on axis 1; 0: none.
        epsilon: added to the variance.
        centred: whether the mean is subtracted.
        gamma_slot: of the scale per channel; None: there are none.
    """

    axis: int = -1
    ch_axis: int = -1
    groups: int = 0
    epsilon: float = 1e-5
    centred: bool = True
    gamma_slot: int | None = 1


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """Sums of one input times constants that are no weight of the operator's rule.

    Attributes:
        slot: of the input.
        rows: (..., sums, inputs): the constants of each sum.
    """

    slot: int
    rows: Array


@dataclass(frozen=True, slots=True)
class Factored:
    """The error of one input, times another that varies, or over it.

    Attributes:
        slot: of the input.
        by: slot of the other.
        power: of the other: 1, or -1 where it divides.
    """

    slot: int
    by: int
    power: float = 1.0


@dataclass(frozen=True, slots=True)
class Summed:
    """The errors of so many elements of one input, added up and multiplied.

    Attributes:
        slot: of the input.
        count: of the elements.
        factor: of their sum: 1, or 1 / count of a mean.
    """

    slot: int
    count: int
    factor: float = 1.0


Response = Linear | Curve | Normalizing | Weighted | Factored | Summed

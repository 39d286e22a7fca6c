"""Where weights give up range, so that two products of integers that are added in int16 fit it.

On x86 without VNNI, uint8 by int8 products are added in pairs in int16, which saturates; see
onnxq.targets.accumulation. Only pairs of large weights of one sign get there:

    EVERYWHERE   no weight beyond +-64: 255 * (64 + 64) = 32640 < 2^15. Half of the range is given
                 up in every channel, also where no two large weights are neighbours.
    WORST_CASE   a channel's scale grows only until the largest of its pairs fits, whatever the
                 activations are: |q_i + q_j| <= 128 for neighbours of one sign. Exact for any
                 input, as EVERYWHERE is.
    OBSERVED     as WORST_CASE, in the channels where a pair left int16 on the samples. Exact on
                 those samples only: on other inputs, integers may differ.
"""

import enum
from dataclasses import dataclass

from onnxq.errors import member


class ReduceRange(enum.Enum):
    """Which weights get a smaller range so that pairs of products fit int16."""

    EVERYWHERE = "everywhere"
    """All of operators that add pairs: integers within +-64."""
    WORST_CASE = "worst-case"
    """Channels with pairs that some activations take beyond int16."""
    OBSERVED = "observed"
    """Channels with pairs that the samples took beyond int16."""

    def __str__(self) -> str:
        return self.value

    @property
    def for_any_input(self) -> bool:
        """Whether no input at all takes a pair beyond int16."""
        return self is not ReduceRange.OBSERVED


def as_reduce_range(value: ReduceRange | str) -> ReduceRange:
    """The ReduceRange that a ReduceRange or its name stands for."""
    return member(ReduceRange, value, "reduced range")


@dataclass(frozen=True, slots=True)
class ReducedRange:
    """Reduction of one weight's range.

    Attributes:
        channels: whose scale was increased.
        of: scales that it has.
        largest: ratio of increase of one.
        mean: ratio, over all of them (geometric).
    """

    channels: int
    of: int
    largest: float
    mean: float

"""Evidence of the deciders that look at data: statistics, times of nodes, the objective."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from onnxq.static.choosing.weighing import Weighing
from onnxq.static.noise.sensitive import sensitive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxq.core.reason import Reason
    from onnxq.dynamic.dynamic_decision import Objective
    from onnxq.graph.sizes import Sizes
    from onnxq.static.choosing.proposals import Proposals
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics
    from onnxq.times.time_model import TimeSource


@dataclass(frozen=True, eq=False)
class Evidence:
    """Data, times and the objective, as far as deciders look at them.

    Attributes:
        begun: with the precisions that were decided without data.
        times: (sizes of the values with one sample, times of nodes); None: they are not known.
        objective: SIZE stores the weights of float nodes.
        after: the Prepared with these proposals, and what the rules make of the rest then.
    """

    begun: Prepared
    statistics: Statistics
    times: tuple[Mapping[str, Sizes], TimeSource] | None
    objective: Objective
    after: Callable[[Prepared, str, Proposals], Prepared]

    @cached_property
    def sensitive(self) -> dict[str, Reason]:
        """Tensor -> why integers do not hold it, its copies included."""
        found = sensitive(self.begun, self.statistics)
        return {
            member: found[source].reason
            for group in self.begun.groups
            for source in group.observed
            if source in found
            for member in group.members
        }

    def weighing(self, prepared: Prepared) -> Weighing | None:
        """Times of the model in these precisions and in float; None: they are not known."""
        return None if self.times is None else Weighing(prepared, *self.times)

"""Changes of parts of a model within their forms, in the order of what each gives.

A group that is quantized alone is measured with its entries as they are, and with each change: the
noise that a change takes away is its gain. It costs no time, so that gains alone order these
changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import NodeForm
from onnxq.tuning.search.config_changes import PartialChange
from onnxq.tuning.sensitivity.measure_sensitivity import few_runs, sensitivity_of
from onnxq.tuning.timing.node_group import NodeGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluation.evaluations import Evaluations
    from onnxq.tuning.search.candidate import Candidate
    from onnxq.tuning.search.config_changes import EntryChange
    from onnxq.tuning.search.layers import Layers

MOST_GROUPS = 4
"""Groups that are measured with each change, the dearest: those behind them have a tenth of the
noise and less in the table of docs/guides/tune.md."""
IN_FLOAT = (NodeForm.FLOAT, NodeForm.STORED)
"""Forms whose activations are no codes."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A group with a change of its own.

    Attributes:
        alike: the groups.
        change: within their forms; None: as they are.
    """

    alike: Layers
    change: EntryChange | None

    @property
    def node_group(self) -> NodeGroup:
        """The nodes, under a name that tells the change."""
        group = self.alike.node_group
        beside = "" if self.change is None else f", {self.change.name}"
        return NodeGroup(f"{group.name}{beside}", group.nodes)


@dataclass(frozen=True, eq=False)
class PartChanges:
    """Offers of changes of the dearest groups of a model.

    Attributes:
        evaluations: of the search.
        groups: the dearest first; none has a group of another.
        changes: that each may have.
        alone: mapping in which a group is quantized, and all else in float.
        executor: runs the groups; None: this process.
    """

    evaluations: Evaluations
    groups: Sequence[Layers]
    changes: Sequence[EntryChange]
    alone: Callable[[Layers], QConfigMapping]
    executor: Executor | None

    @property
    def runs(self) -> float:
        """Runs that offers take at most."""
        groups = min(len(self.groups), MOST_GROUPS)
        asked = groups * (1 + len(self.changes)) if self.changes else 0
        return few_runs(self.evaluations.evaluator.samples, asked)

    def offers(self, candidate: Candidate) -> list[PartialChange]:
        """Changes that take noise away from groups whose activations are codes, the best first.

        Args:
            candidate: of the search; what it has in float has nothing to gain.
        """
        groups = [group for group in self.groups if _is_coded(group, candidate)][:MOST_GROUPS]
        asked = [Changed(group, change) for group in groups for change in (None, *self.changes)]
        if not self.changes or not groups:
            return []
        found = sensitivity_of(
            self.evaluations,
            self._mapping,
            asked,
            None,
            self.executor,
            few_runs(self.evaluations.evaluator.samples, len(asked)),
        )
        noise = {cost.group: cost.noise for cost in found.costs}
        return _best(asked, noise)

    def _mapping(self, changed: Changed) -> QConfigMapping:
        mapping = self.alone(changed.alike)
        if changed.change is None:
            return mapping
        return PartialChange(changed.change, changed.alike.groups).applied(mapping)


def _is_coded(group: Layers, candidate: Candidate) -> bool:
    return any(candidate.form(group) not in IN_FLOAT for group in group.groups)


def _best(asked: Iterable[Changed], noise: Mapping[str, float]) -> list[PartialChange]:
    """The changes with a gain, for each group and aspect the one with the most, best first."""
    gains: dict[tuple[str, str], tuple[float, PartialChange]] = {}
    for each in asked:
        before, after = noise.get(each.alike.name), noise.get(each.node_group.name)
        if each.change is None or before is None or after is None or after >= before:
            continue
        key = each.alike.name, each.change.aspect
        if key not in gains or gains[key][0] < before - after:
            gains[key] = before - after, PartialChange(each.change, each.alike.groups)
    return [change for _, change in sorted(gains.values(), key=lambda item: -item[0])]

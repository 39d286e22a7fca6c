"""Forms that statistics, times and the objective make of those that the rules chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.sizes import sizes_of
from onnxq.graph.walk import walk
from onnxq.qconfig import Choice
from onnxq.static.choosing.by_costs import by_costs
from onnxq.static.choosing.by_data import by_data
from onnxq.static.choosing.by_shared_tails import by_shared_tails
from onnxq.static.choosing.by_size import by_size, note_on_size
from onnxq.static.choosing.rules import open_entry
from onnxq.times import costs_of

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics


def with_statistics(
    prepared: Prepared, statistics: Statistics, objective: Objective
) -> tuple[Prepared, list[str]]:
    """(the Prepared with a form for every node that the qconfig leaves open, notes).

    Args:
        prepared: with the forms that the rules chose.
        statistics: of its observed tensors.
        objective: SIZE stores the weights of float nodes.
    """
    if prepared.qconfig.choice is not Choice.BEST:
        return prepared, []
    notes: list[str] = []
    if _leaves_open(prepared):  # of a mapping that names all forms, nothing is to be weighed
        prepared, notes = _weighed(prepared, statistics)
    if objective is Objective.SIZE:
        return by_size(prepared), notes
    return prepared, [*notes, *note_on_size(prepared)]


def _weighed(prepared: Prepared, statistics: Statistics) -> tuple[Prepared, list[str]]:
    """(the Prepared with the forms that data and times leave, a note where no times are known)."""
    prepared = by_data(prepared, statistics)
    table = costs_of(prepared.target.name) if prepared.costs is None else prepared.costs
    if table is None:
        note = (
            f"no times were measured for {prepared.target}: forms follow the static rules. `onnxq "
            "costs -o FILE` on such a machine and --costs FILE decide by its times"
        )
        return prepared, [note]
    if not statistics.samples.shapes:
        note = (
            "the statistics are of an earlier onnxq and tell no shapes, without which no times are "
            "known: forms follow the static rules. Calibrate again"
        )
        return prepared, [note]
    sizes = sizes_of(prepared.model, statistics.samples.shapes)
    prepared = by_costs(prepared, sizes, table)
    return by_shared_tails(prepared, statistics, sizes, table), []


def _leaves_open(prepared: Prepared) -> bool:
    """Whether the qconfig leaves a node's form to be chosen."""
    nodes = (node for node, _ in walk(prepared.model.graph))
    return any(open_entry(node, prepared.qconfig) is not None for node in nodes)

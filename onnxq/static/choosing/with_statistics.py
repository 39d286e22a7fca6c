"""What statistics and times make of the forms that the rules chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import costs
from onnxq.qconfig import Choice
from onnxq.static.choosing.by_costs import by_costs
from onnxq.static.choosing.by_data import by_data
from onnxq.static.choosing.by_stems import by_stems

if TYPE_CHECKING:
    from onnxq.static.prepare import Prepared
    from onnxq.static.statistics import Statistics


def with_statistics(prepared: Prepared, statistics: Statistics) -> Prepared:
    """The Prepared with a form for every node that the qconfig leaves open.

    Args:
        prepared: with the forms that the rules chose.
        statistics: of its observed tensors.
    """
    if prepared.qconfig.choice is not Choice.BEST:
        return prepared
    prepared = by_data(prepared, statistics)
    table = prepared.costs or costs.of(prepared.target.name)
    if table is not None:
        prepared = by_costs(prepared, statistics, table)
        prepared = by_stems(prepared, statistics, table)
    return prepared

"""Forms that do not pay: integer nodes whose times, conversions included, are longer than in float.

The time of a model is a sum over nodes in their forms and over tensors between two of them that
have other numbers: for two forms of each node, the least is a minimum cut. What it leaves in float
goes there, neighbours by neighbours, where that saves more than the table may be wrong by. Nodes
only ever move to float, which loses nothing of accuracy.

Where the cut gives about float's time, that is not worth its roundings: a MobileNetV3 and an
EfficientNet run in float for the most part, with 8 and 19 dB more than all integers, which are
slower than float (benchmarks/results/defaults.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.static.choosing.again import chosen_again, in_float
from onnxq.static.choosing.weighing import Weighing, forms_of, in_us
from onnxq.static.reasons import TooLittleSaved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.graph.sizes import Sizes
    from onnxq.static.choosing.named_forms import NamedForm
    from onnxq.static.prepared import Prepared
    from onnxq.times import Costs

LEAST_GAIN = 0.05
"""Share of a model's time in float that integers have to save together: the table is wrong by 6% in
the median of whole networks (benchmarks/results/costs.md), and integers cost accuracy in any
case."""


def by_costs(prepared: Prepared, sizes: Mapping[str, Sizes], costs: Costs) -> Prepared:
    """The Prepared without integer nodes that take longer than float ones.

    Args:
        prepared: with the forms that rules and data chose.
        sizes: of the model's values, with one sample.
        costs: times of nodes in each form.
    """
    return _without_integers_for_nothing(_without_slower(prepared, sizes, costs), sizes, costs)


def _without_slower(prepared: Prepared, sizes: Mapping[str, Sizes], costs: Costs) -> Prepared:
    """The Prepared without the integer nodes that the cut has in float."""
    weighing = Weighing(prepared, sizes, costs)
    naming: dict[str, NamedForm] = {}
    for nodes in weighing.slower():
        reason = weighing.reason(nodes)
        naming |= in_float(prepared, nodes, reason) if reason else {}
    if not naming:
        return prepared
    found = chosen_again(prepared, naming)
    return found if weighing.ns(forms_of(found)) < weighing.ns(weighing.forms) else prepared


def _without_integers_for_nothing(
    prepared: Prepared, sizes: Mapping[str, Sizes], costs: Costs
) -> Prepared:
    """The Prepared without integers where all of them together save less than anybody would notice.

    A small model, of which that share is less than a run takes with nothing in it, keeps its
    integers.
    """
    weighing = Weighing(prepared, sizes, costs)
    quantized, float_ns = weighing.quantized(), weighing.ns({})
    saved = weighing.saved_by_integers(quantized)
    if not quantized or saved >= LEAST_GAIN * float_ns or LEAST_GAIN * float_ns <= weighing.run_ns:
        return prepared
    reason = TooLittleSaved(len(quantized), in_us(float_ns), in_us(-saved), costs.target)
    return chosen_again(prepared, in_float(prepared, quantized, reason))

"""Deciders of static quantization, in their order: each proposes precisions of nodes, with reasons.

    ALONE           one node: by_dynamic_request, by_loop, by_operator, by_request,
                    by_operator_rule, by_tensors, by_integer_types, by_default
    BESIDE          beside nodes ahead: by_infinity, by_clip_bounds
    by_conversions  what integers cost in conversions, where the quantizers are inserted
    BY_STATE        by_state: rounding that would add up from batch to batch
    BY_RULES        what was measured of whole networks: by_stored_bits, by_static_quantization,
                    by_neighbours, by_lookup
    WITH_MEASUREMENTS   by_data (what 8 bits do not hold), by_time, by_total_time, by_stem
                    (noise at the start of float sums), by_size (objective `size`)

ALONE, BESIDE and by_conversions run each time that quantizers are inserted: they take from what
integers could do, and never give back. The others propose entries for nodes that the user left
open. After each of WITH_MEASUREMENTS, BY_RULES are asked again: nodes may have lost their reason.
`onnxq inspect MODEL --why NODE` prints what each decider said of one node.

Three places act after this list, each on what only exists then:

    planning.demotion    nodes whose tensors got no scale, or one that no kernel takes: scales are
                         of the plan, and the other nodes keep theirs
    dynamic.dynamic_plan how a node is quantized dynamically that was decided to be
    rewrite.guards, checking.runnable
                         which nodes of the written file ONNX Runtime refuses, seen by running it
"""

from collections.abc import Callable
from dataclasses import replace

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.qconfig import Choice
from onnxq.static.choosing.by_size import by_size, note_on_size
from onnxq.static.choosing.by_state import by_state
from onnxq.static.choosing.by_stem import by_stem
from onnxq.static.choosing.measurements import Measurements, by_data, by_time, by_total_time
from onnxq.static.choosing.proposals import Proposals, SoFar, open_entry
from onnxq.static.choosing.rules import (
    by_lookup,
    by_neighbours,
    by_static_quantization,
    by_stored_bits,
)
from onnxq.static.insertion.candidates import ALONE
from onnxq.static.insertion.groups import as_observed
from onnxq.static.insertion.insert_quantizers import BESIDE, by_conversions
from onnxq.static.prepared import Prepared
from onnxq.static.statistics import Statistics
from onnxq.times import costs_of
from onnxq.times.model_times import sizes_for

BY_STATE: tuple[Callable[[SoFar], Proposals], ...] = (by_state,)
BY_RULES: tuple[Callable[[SoFar], Proposals], ...] = (
    by_stored_bits,
    by_static_quantization,
    by_neighbours,
    by_lookup,
)
WITH_MEASUREMENTS: tuple[Callable[[Prepared, Measurements], Proposals], ...] = (
    by_data,
    by_time,
    by_total_time,
    by_stem,
    by_size,
)
DECIDERS = (*ALONE, *BESIDE, by_conversions, *BY_STATE, *BY_RULES, *WITH_MEASUREMENTS)
"""All of them, in order; the stages run the tuples that it joins. The last proposal holds."""
REPEATED = frozenset([by_neighbours, by_data])
"""Deciders that are asked until they propose nothing: their proposals change what they look at."""


def by_rules(so_far: SoFar, deciders: tuple[Callable[[SoFar], Proposals], ...] = BY_RULES) -> SoFar:
    """Adds the proposals of deciders without data."""
    for decide in deciders:
        while more := decide(so_far):
            so_far = so_far.following(decide.__name__, more)
            if decide not in REPEATED:
                break
    return so_far


def decided_again(prepared: Prepared, decider: str, more: Proposals) -> Prepared:
    """The Prepared with these proposals; nodes that lose their reason by it lose their integers.

    What is observed stays as it is.
    """
    so_far = by_rules(SoFar(prepared.context, prepared.chosen.following(decider, more)))
    found = so_far.inserted
    return replace(
        prepared,
        chosen=so_far.decided,
        decisions={**found.decisions, **prepared.left},
        groups=as_observed(found.groups, prepared.observed),
        clamps=found.clamps,
        channel_scales=found.channel_scales,
    )


def with_measurements(
    prepared: Prepared, statistics: Statistics, objective: Objective
) -> tuple[Prepared, list[str]]:
    """(the Prepared with a precision for every node that the qconfig leaves open, notes)."""
    context = prepared.context
    if context.asked.choice is not Choice.BEST:
        return prepared, []
    notes: list[str] = []
    if any(open_entry(node, context.asked) is not None for node, _ in context.order):
        measurements, notes = _measurements(prepared, statistics, objective)
        prepared = weighed(prepared, measurements)
    return prepared, notes + note_on_size(prepared, objective)


def weighed(
    prepared: Prepared,
    measurements: Measurements,
    deciders: tuple[Callable[[Prepared, Measurements], Proposals], ...] = WITH_MEASUREMENTS,
) -> Prepared:
    """The Prepared with the proposals of deciders that look at measurements."""
    for decide in deciders:
        while more := decide(prepared, measurements):
            prepared = decided_again(prepared, decide.__name__, more)
            if decide not in REPEATED:
                break
    return prepared


def _measurements(
    prepared: Prepared, statistics: Statistics, objective: Objective
) -> tuple[Measurements, list[str]]:
    """(the Measurements, a note where no times are known)."""
    table = costs_of(prepared.target.name) if prepared.costs is None else prepared.costs
    times, notes = None, []
    if table is None:
        notes = [
            f"no times were measured for {prepared.target}: precisions follow the static rules. "
            "`onnxq costs -o FILE` on such a machine and --costs FILE decide by its times"
        ]
    elif not statistics.samples.shapes:
        notes = [
            "the statistics are of an earlier onnxq and tell no shapes, without which no times are "
            "known: precisions follow the static rules. Calibrate again"
        ]
    else:
        times = (sizes_for(prepared.model, statistics.samples.shapes), table)
    return Measurements(prepared, statistics, times, objective, decided_again), notes

"""The chain of one node: each decider that had something to say of it, in order."""

from dataclasses import dataclass

from onnxq.core.reason import Reason
from onnxq.errors import QConfigError, nearest
from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.static.choosing.node_precisions import precisions_of
from onnxq.static.choosing.proposals import Decided, SoFar
from onnxq.static.insertion.candidates import alone
from onnxq.static.insertion.context import Context
from onnxq.static.insertion.insert_quantizers import by_clip_bounds, by_conversions
from onnxq.static.insertion.unbounded import by_infinity
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import BoundsOutsideRange, ReadsInfinity

_INSERTED_BY: dict[type[Reason], str] = {
    ReadsInfinity: by_infinity.__name__,
    BoundsOutsideRange: by_clip_bounds.__name__,
}


@dataclass(frozen=True, slots=True)
class Said:
    """One statement of a decider on a node."""

    decider: str
    precision: Precision
    reason: Reason


def chain_of(prepared: Prepared, name: str) -> tuple[Said, ...]:
    """Statements of deciders on a node, those that insert quantizers as the qconfig asks first."""
    context = prepared.context
    found = {node_name(node): (node, loop) for node, loop in context.order}
    if name not in found:
        raise QConfigError(
            f"node '{name}' is not in the model, which has {len(found)} nodes. 'onnxq inspect' "
            f"lists them.{nearest(name, found)}"
        )
    first = alone(context, *found[name], context.asked)
    if first is not None:
        said = [Said(first[0], Precision.FLOAT, first[1].reason)]
    else:
        said = [_inserted(context, Decided(context.asked), name)]
    for by, proposal in prepared.chosen.chain.get(name, ()):
        asked = None if proposal.entry is None else proposal.entry.precision
        said.append(Said(by, asked or Precision.DYNAMIC_INT8, proposal.reason))
    again = _inserted(context, prepared.chosen, name)
    lost = again.precision is Precision.FLOAT is not said[-1].precision
    return (*said, again) if lost else tuple(said)


def _inserted(context: Context, decided: Decided, name: str) -> Said:
    """Finds what inserting quantizers says of a node, with what is decided so far."""
    decisions = SoFar(context, decided).insertion.decisions
    found = precisions_of(context.model, decisions, {}, context.target.throughput)[name]
    decider = _INSERTED_BY.get(type(found.reason), by_conversions.__name__)
    return Said(decider, found.precision, found.reason)

"""Forms named by data or times, and what the rules make of the rest then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.static.choosing.named_forms import NamedForm
from onnxq.static.choosing.rules import by_rules, open_entry
from onnxq.static.prepare import named_again

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from onnxq.core.reason import Reason
    from onnxq.static.choosing.named_forms import Naming
    from onnxq.static.prepared import Prepared


def chosen_again(prepared: Prepared, naming: Naming) -> Prepared:
    """The Prepared with these forms; nodes that lose their reason by it lose their integers, too.

    Args:
        prepared: with the forms that were chosen before.
        naming: of nodes that nobody named.
    """
    return named_again(prepared, by_rules(prepared.context, prepared.chosen.naming(naming)))


def in_float(prepared: Prepared, nodes: Iterable[ir.Node], reason: Reason) -> Naming:
    """FLOAT with that reason, for those of the nodes that nobody named."""
    entries = {node_name(node): open_entry(node, prepared.qconfig) for node in nodes}
    return {
        name: NamedForm(replace(entry, precision=Precision.FLOAT), reason)
        for name, entry in entries.items()
        if entry is not None
    }

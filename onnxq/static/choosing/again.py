"""Forms named by data or times, and what the rules make of the rest then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.static.choosing.rules import by_rules
from onnxq.static.prepare import named_again

if TYPE_CHECKING:
    from onnxq.static.choosing.named import Naming
    from onnxq.static.prepare import Prepared


def chosen_again(prepared: Prepared, naming: Naming) -> Prepared:
    """The Prepared with these forms; nodes that lose their reason by it lose their integers, too.

    Args:
        prepared: with the forms that were chosen before.
        naming: of nodes that nobody named.
    """
    named = by_rules(
        prepared.model,
        prepared.qconfig,
        prepared.target,
        prepared.output_codes,
        prepared.chosen.naming(naming),
    )
    return named_again(prepared, named)

"""Cards: short HTML of a value, as notebooks show it; the style is inside, and no script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.core.brief import shown_fields
from onnxq.page.content import NamedText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import DataclassInstance

MOST_ROWS = 10
"""Rows of a card's table; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a card."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def card(
    title: str,
    said: Sequence[str] = (),
    facts: Sequence[NamedText] = (),
    tables: Sequence[Table] = (),
) -> str:
    """HTML of a value, in which every text is escaped."""
    from onnxq.page.environment import environment  # here: jinja2 takes time to import

    template = environment().get_template("card.html")
    return template.render(title=title, said=said, facts=facts, tables=tables, most=MOST_ROWS)


def card_of(value: DataclassInstance, *tables: Table) -> str:
    """The card of a dataclass: its fields, as its repr shortens them."""
    facts = [NamedText(name.replace("_", " "), text) for name, text in shown_fields(value)]
    return card(type(value).__name__, (), facts, tables)


def counts(names: str, found: Mapping[str, int]) -> Table:
    """A table of how often there is each; the column is called `names`."""
    return Table((names, "nodes"), tuple((name, str(n)) for name, n in found.items()))

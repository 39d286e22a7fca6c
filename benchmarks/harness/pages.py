"""Pages rendered from results: those beside the results, and the figures that docs quote.

benchmarks/templates/NAME.md.j2 is the page of a benchmark, in Jinja: {{ table("times") }} is
a table, {{ table("times", "vit") }} the rows that begin with vit.

benchmarks/quotes/PAGE.j2 holds what PAGE of the repository quotes: blocks of its text, a blank line
between them, in which {{ calibration.times("plain ms", "MinMax") | fixed(1) }} stands for a number.
Every block must be found in the page, whatever its line breaks, with the numbers of the results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import jinja2

from benchmarks.harness.results import FOLDER, ROOT, Results, load_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TEMPLATES, QUOTES = ROOT / "benchmarks" / "templates", ROOT / "benchmarks" / "quotes"
EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
EXACT = 9
"""Digits behind the point that a product of stored decimals has, and a float keeps."""

NUMBER = r"([-+]?\d[\d.,]*\d|[-+]?\d|inf|-)"


class RenderError(Exception):
    """A page asks for what the results do not have, or quotes no longer stand in a page."""


@dataclass(frozen=True)
class Page:
    """A page as it is, and as the results have it."""

    path: Path
    before: str
    after: str

    def differences(self) -> Iterator[str]:
        """Lines that differ, in words."""
        old, new = self.before.splitlines(), self.after.splitlines()
        where = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        for number, (a, b) in enumerate(zip(old, new, strict=False), 1):
            if a != b:
                yield f"{where}:{number}: page: {a.strip()}\n{'':>{len(str(where))}}  results: {b}"
        if len(old) != len(new):
            yield f"{where}: {len(old)} lines; results make {len(new)}"


def rendered(templates: Path = TEMPLATES, folder: Path = FOLDER) -> Iterator[Page]:
    """Every page beside the results.

    Raises:
        RenderError: a template cannot be rendered.
    """
    results = load_all(folder)
    for path in sorted(templates.glob("*.md.j2")):
        own = results.get(path.name.partition(".")[0], Results())
        text = _rendered(path, path.read_text("utf-8"), results | {"table": _tables(own)})
        target = folder / path.stem
        yield Page(target, target.read_text("utf-8") if target.exists() else "", text)


def quoting(quotes: Path = QUOTES, root: Path = ROOT, folder: Path = FOLDER) -> Iterator[Page]:
    """Every page that quotes figures.

    Raises:
        RenderError: a block of quotes does not stand in its page, or cannot be rendered.
    """
    results = load_all(folder)
    for path in sorted(quotes.rglob("*.md.j2")):
        page = root / path.relative_to(quotes).with_suffix("")
        before = after = page.read_text("utf-8")
        for block in re.split(r"\n\s*\n", path.read_text("utf-8").strip()):
            after = _quoted(path, block, after, results)
        yield Page(page, before, after)


def _quoted(path: Path, block: str, text: str, results: Mapping[str, Results]) -> str:
    """The text with the numbers of a block put in."""
    pattern = NUMBER.join(
        r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))
        for part in EXPRESSION.split(block)
    )
    found = re.search(pattern, text)
    if found is None:
        raise RenderError(f"{path}: its page has no such text:\n{block}")
    numbers = [_rendered(path, each, results) for each in EXPRESSION.findall(block)]
    for place in reversed(range(len(numbers))):
        begin, end = found.span(place + 1)
        text = text[:begin] + numbers[place] + text[end:]
    return text


def _rendered(path: Path, text: str, values: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    environment.filters["fixed"] = _fixed
    scope = {k: v.tables if isinstance(v, Results) else v for k, v in values.items()}
    try:
        return environment.from_string(text).render(scope)
    except (jinja2.TemplateError, KeyError, TypeError, ValueError) as error:
        where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        raise RenderError(f"{where}: {text if text.startswith('{{') else ''} {error}") from error


def _tables(own: Results) -> Any:
    def table(name: str, *keys: object) -> str:
        if name not in own.tables:
            raise KeyError(f"no table {name!r}; there are {', '.join(own.tables) or 'none'}")
        return own.tables[name].markdown(*keys)

    return table


def _fixed(value: float, digits: int = 2) -> str:
    """The number with so many digits behind the point, halves away from 0, thousands apart."""
    exact = Decimal(str(round(float(value), EXACT)))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"

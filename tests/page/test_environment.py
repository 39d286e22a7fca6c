from __future__ import annotations

import math

import jinja2
import pytest

from onnxq.page.environment import asset, environment


def test_texts_are_escaped_and_misspelt_names_are_errors() -> None:
    made = environment()
    assert made.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    with pytest.raises(jinja2.UndefinedError):
        made.from_string("{{ misspelt }}").render()


def test_unknown_numbers_sort_last_and_broken_ones_first() -> None:
    sortable = environment().filters["sortable"]
    assert sortable(None) == ""
    numbers = [float(sortable(x)) for x in (math.nan, -math.inf, 1.0, math.inf)]
    assert numbers == sorted(numbers)


def test_the_script_makes_no_html_of_texts() -> None:
    script = asset("page.js")
    assert "innerHTML" not in script
    assert "insertAdjacentHTML" not in script
    assert "fetch(" not in script

from __future__ import annotations

import json

import pytest

from onnxq.page.render import island
from tests.page.example_page import HOSTILE


def test_names_cannot_leave_the_element_and_come_back_as_they_are() -> None:
    text = island({"name": HOSTILE})
    assert text.isascii()
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"name": HOSTILE}


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        island({"x": float("nan")})

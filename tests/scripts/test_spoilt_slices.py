from __future__ import annotations

import pytest

from scripts.spoilt_slices import Case, cases


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_a_spoilt_part_is_named_with_its_own_figure(case: Case) -> None:
    whole, _ = case.found()
    assert case.is_right
    assert case.own_db < whole

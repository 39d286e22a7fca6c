from __future__ import annotations

import pytest

from onnxq.errors import QConfigError
from onnxq.targets.range_reduction import RangeReduction, as_range_reduction


@pytest.mark.parametrize("value", RangeReduction)
def test_a_reduction_and_its_name_stand_for_it(value: RangeReduction) -> None:
    assert as_range_reduction(value) is as_range_reduction(value.value) is value
    assert str(value) == value.value


def test_an_unknown_one_is_told_what_there_is() -> None:
    with pytest.raises(QConfigError, match=r"'worst' is not known; known: everywhere, worst-case"):
        as_range_reduction("worst")


def test_only_observed_depends_on_the_input() -> None:
    assert [r for r in RangeReduction if not r.for_any_input] == [RangeReduction.OBSERVED]

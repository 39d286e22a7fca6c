from __future__ import annotations

import pytest

from onnxq.errors import QConfigError
from onnxq.targets.reduce_range import ReduceRange, as_reduce_range


@pytest.mark.parametrize("value", ReduceRange)
def test_a_reduction_and_its_name_stand_for_it(value: ReduceRange) -> None:
    assert as_reduce_range(value) is as_reduce_range(value.value) is value
    assert str(value) == value.value


def test_an_unknown_one_is_told_what_there_is() -> None:
    with pytest.raises(QConfigError, match=r"'worst' is not known; known: everywhere, worst-case"):
        as_reduce_range("worst")


def test_only_observed_depends_on_the_input() -> None:
    assert [r for r in ReduceRange if not r.for_any_input] == [ReduceRange.OBSERVED]

"""A GroupSpec names bits, group and symmetry of a weight in groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.errors import QConfigError, UnsupportedError
from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from tests.weights.block_models import solved, weight

if TYPE_CHECKING:
    from onnxq.qparams.groups import GroupIntegers


def test_three_bits_are_refused_with_the_reason_that_onnx_runtime_gives() -> None:
    with pytest.raises(UnsupportedError, match="Only 2b, 4b and 8b quantization is supported"):
        GroupSpec(bits=3)


@pytest.mark.parametrize("bits", [0, 1, 16])
def test_bits_that_no_one_packs_are_refused(bits: int) -> None:
    with pytest.raises(QConfigError, match="wanted 2, 4 or 8"):
        GroupSpec(bits=bits)


def test_a_block_size_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(QConfigError, match="nearest is 32"):
        GroupSpec(group_size=40)


FORMS = [(b, s) for b in (2, 4, 8) for s in Scheme if (b, s) != (8, Scheme.REAL)]


def test_real_zero_points_of_8_bits_are_refused_and_become_whole_in_a_mix() -> None:
    with pytest.raises(UnsupportedError, match="2 and 4 bits alone"):
        GroupSpec(8, scheme=Scheme.REAL)
    assert GroupSpec(4, scheme=Scheme.REAL).at(8) == GroupSpec(8)


@pytest.mark.parametrize(("bits", "scheme"), FORMS)
def test_size_is_that_of_the_arrays(bits: int, scheme: Scheme) -> None:
    spec = GroupSpec(bits, 16, scheme)
    integers: GroupIntegers = solved(weight(3, 70), spec, Method.RTN)
    arrays = integers.packed().arrays
    assert sum(a.nbytes for a in arrays.values()) == spec.size_bytes(3, 70)

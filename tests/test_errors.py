from __future__ import annotations

import re

import pytest

from onnxq import errors
from onnxq.errors import OnnxqError, listed, nearest

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OnnxqError)
]


def test_every_error_has_an_exit_code_of_its_own_that_is_not_clicks() -> None:
    codes = [kind.exit_code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert not {0, 2} & set(codes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_in_the_module_docstring_says_the_code(kind: type[OnnxqError]) -> None:
    assert re.search(rf"{kind.__name__} +{kind.exit_code} ", errors.__doc__ or "")


def test_errors_are_one_level_deep() -> None:
    assert all(OnnxqError in kind.__bases__ for kind in KINDS if kind is not OnnxqError)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("cnov1", " Did you mean 'conv1'?"), ("zzz", ""), ("conv1", " Did you mean 'conv1'?")],
)
def test_the_nearest_name_is_a_phrase_or_nothing(name: str, wanted: str) -> None:
    assert nearest(name, iter(["gemm", "conv1", "relu"])) == wanted


def test_nothing_is_near_where_nothing_is() -> None:
    assert nearest("x", []) == ""


def test_a_few_names_are_listed_and_the_rest_counted() -> None:
    assert listed(["a", "b", "c", "d"]) == "'a', 'b', 'c', 'd'"
    assert listed(["a", "b", "c", "d", "e"]) == "'a', 'b', 'c', 'd' and 1 more"

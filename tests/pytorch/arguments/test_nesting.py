from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict
from typing import Any, NamedTuple

import pytest
import torch

from onnxq.pytorch.arguments.nesting import children, joined, leaves, replaced, shown, unique

pytestmark = pytest.mark.oracle


class State(NamedTuple):
    h: object
    c: object


@dataclasses.dataclass(frozen=True)
class Result:
    logits: object
    loss: object = None


class Own(UserDict[str, object]):
    pass


NESTED: tuple[object, ...] = (
    1,
    [State(2, 3), {"a.b": 4, "n": None}],
    Result(5),
    OrderedDict(z=6),
    Own(q=7),
)


def test_leaves_have_positions_keys_and_fields_as_their_path() -> None:
    assert list(leaves(NESTED)) == [
        ((0,), 1),
        ((1, 0, "h"), 2),
        ((1, 0, "c"), 3),
        ((1, 1, "a.b"), 4),
        ((1, 1, "n"), None),
        ((2, "logits"), 5),
        ((2, "loss"), None),
        ((3, "z"), 6),
        ((4, "q"), 7),
    ]
    x = torch.ones(2)
    ((path, leaf),) = leaves(x)
    assert path == ()
    assert leaf is x


def test_a_rebuilt_value_has_the_same_types_and_leaves_the_old_as_it_is() -> None:
    made: Any = replaced(NESTED, lambda path, _: shown(("x", *path)))
    assert made[1][0] == State("x[1][0]['h']", "x[1][0]['c']")
    assert made[1][1] == {"a.b": "x[1][1]['a.b']", "n": "x[1][1]['n']"}
    assert made[2] == Result("x[2]['logits']", "x[2]['loss']")
    assert [type(part) for part in made] == [str, list, Result, OrderedDict, Own]
    assert made[4]["q"] == "x[4]['q']"
    assert dict(leaves(NESTED))[0,] == 1


def test_what_pytree_was_told_of_is_taken_apart() -> None:
    class Cache:
        def __init__(self, *parts: object) -> None:
            self.parts = parts

    torch.utils._pytree.register_pytree_node(
        Cache, lambda cache: (list(cache.parts), None), lambda parts, _: Cache(*parts)
    )
    assert children(Cache(1, 2)) == [(0, 1), (1, 2)]
    assert replaced(Cache(1, 2), lambda *_: 3).parts == (3, 3)


def test_leaves_have_no_children_and_empty_sequences_no_leaves() -> None:
    assert children(None) is None
    assert children("text") is None
    assert children(Result) is None
    assert children(()) == []
    assert list(leaves([(), {}])) == []


def test_names_are_identifiers_and_each_is_of_one() -> None:
    assert joined(("batch", "a.b", 0)) == "batch_a_b_0"
    assert unique(["x", "y", "x", "x"], ["y"]) == ["x", "y_2", "x_2", "x_3"]

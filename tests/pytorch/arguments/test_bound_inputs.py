from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.errors import QConfigError, UnsupportedError
from onnxq.pytorch.arguments.bound_inputs import bind, feeds

pytestmark = pytest.mark.oracle

X = torch.arange(6.0).reshape(3, 2)


class Pair(nn.Module):
    def forward(self, first: torch.Tensor, *, second: torch.Tensor) -> torch.Tensor:
        return first + second


def test_inputs_bind_to_the_names_of_forward_in_its_order() -> None:
    bound = bind(Pair(), {"second": X, "first": X + 1})
    assert list(bound.tensors) == ["first", "second"]
    assert len(bound.args) == 1
    assert list(bound.kwargs) == ["second"]


def test_resizing_repeats_the_last_row_or_cuts() -> None:
    bound = bind(nn.ReLU(), X)
    assert bound.resized({"input": (0,)}, 4).tensors["input"].tolist() == [*X.tolist(), [4, 5]]
    assert bound.resized({"input": (1,)}, 1).tensors["input"].tolist() == [[0], [2], [4]]


class Model(nn.Module):
    def forward(self, x: object, hidden: object = None, *rest: object, **named: object) -> object:
        raise NotImplementedError


class State(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor


@dataclasses.dataclass
class Batch:
    ids: torch.Tensor
    scale: float = 2.0


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        ((X, (X, X)), ["x", "hidden_0", "hidden_1"]),
        ({"hidden": State(X, X), "x": X}, ["x", "hidden_h", "hidden_c"]),
        (({"ids": X, "mask": None},), ["x_ids"]),
        ((Batch(X), [X, {"a.b": X}]), ["x_ids", "hidden_0", "hidden_1_a_b"]),
        ((X, None, X, (X,)), ["x", "rest_0", "rest_1_0"]),
        ({"x": X, "extra": X, "more": [X]}, ["x", "extra", "more_0"]),
        ({"x": X, "hidden": (X,), "hidden_0": X}, ["x", "hidden_0_2", "hidden_0"]),
    ],
)
def test_nested_tensors_are_called_as_the_way_to_them(inputs: Any, names: list[str]) -> None:
    bound = bind(Model(), inputs)
    assert list(bound.tensors) == names
    assert not bound.is_flat


def test_a_call_is_rebuilt_with_its_types_and_constants() -> None:
    bound = bind(Model(), (Batch(X, 3.0), State(X, X + 1), None, X))
    batch, state, none, last = bound.holding({"x_ids": X + 5}).args
    assert batch == Batch(batch.ids, 3.0)
    assert torch.equal(batch.ids, X + 5)
    assert isinstance(state, State)
    assert torch.equal(state.c, X + 1)
    assert none is None
    assert torch.equal(last, X)


def test_axes_other_than_the_first_are_resized_together() -> None:
    bound = bind(Model(), (X, (X, X)))
    made = bound.resized({"x": (0,), "hidden_0": (1,)}, 4).tensors
    assert [tuple(x.shape) for x in made.values()] == [(4, 2), (3, 4), (3, 2)]
    square = bind(Model(), torch.ones(3, 3)).resized({"x": (0, 1)}, 2)
    assert square.tensors["x"].shape == (2, 2)


def test_names_can_be_given_for_each_tensor() -> None:
    assert list(bind(Model(), (X, (X, X)), ["tokens", "h", "c"]).tensors) == ["tokens", "h", "c"]
    for names in (["a", "b"], ["a", "b", "b"]):
        with pytest.raises(QConfigError, match=r"3 tensors \(x, hidden\[0\], hidden\[1\]\); got"):
            bind(Model(), (X, (X, X)), names)


def test_feeds_are_arrays_by_input_name() -> None:
    fed = feeds(Model(), (X, {"state": X + 1}))
    assert list(fed) == ["x", "hidden_state"]
    np.testing.assert_array_equal(fed["hidden_state"], X.numpy() + 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_feeds_of_halves_are_float32(dtype: torch.dtype) -> None:
    (x,) = feeds(nn.Linear(2, 2), torch.ones(1, 2, dtype=dtype)).values()
    assert x.dtype == np.float32


def test_what_is_neither_tensor_nor_constant_is_named_with_its_place() -> None:
    with pytest.raises(UnsupportedError, match=r"'hidden\[0\]' is a ndarray.*torch\.from_numpy"):
        bind(Model(), (X, [X.numpy()]))
    with pytest.raises(UnsupportedError, match=r"'inputs' is a ndarray"):
        bind(Model(), X.numpy())  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UnsupportedError, match=r"'hidden\['a'\]' is an object.*register_pytree"):
        bind(Model(), (X, {"a": object()}))
    with pytest.raises(QConfigError, match="there is no tensor among"):
        bind(Model(), (1, None))


def test_a_mapping_for_the_one_parameter_is_to_be_in_a_tuple() -> None:
    message = r"it takes 'input', and was given .* is the mapping itself, .*\(\{\.\.\.\},\)"
    with pytest.raises(QConfigError, match=message):
        bind(nn.ReLU(), {"ids": X, "attention_mask": X})

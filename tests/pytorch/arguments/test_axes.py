from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.export import Dim

from onnxq.errors import QConfigError, UnsupportedError
from onnxq.pytorch.arguments.axes import Axes, DynamicAxes, resolved
from onnxq.pytorch.arguments.bound_inputs import bind

pytestmark = pytest.mark.oracle

BATCH = Dim("batch")


class State(NamedTuple):
    h: object
    c: object


class Model(nn.Module):
    def forward(self, x: object, hidden: object, factor: float = 1.0) -> object:
        raise NotImplementedError


BOUND = bind(Model(), (torch.ones(7, 4), State(torch.ones(2, 4, 8), torch.ones(2, 4, 8)), 2.0))
WANTED = {"x": {1: "batch"}, "hidden_h": {1: "batch"}, "hidden_c": {1: "batch"}}


@pytest.mark.parametrize(
    "axes",
    [
        {"x": {1: "batch"}, "hidden_h": {1: "batch"}, "hidden_c": {-2: "batch"}},
        {"x": {1: "batch"}, "hidden": {1: "batch"}},
        {"x": {1: BATCH}, "hidden": ({1: BATCH}, {1: BATCH})},
        {"x": (None, BATCH), "hidden": {"h": {1: BATCH}, "c": [None, BATCH, None]}},
        {"x": {0: None, 1: "batch"}, "hidden": State({1: BATCH, 0: 2}, {1: BATCH}), "factor": None},
        ({1: BATCH}, ({1: BATCH}, {1: BATCH}), None),
        {"x": {0: Dim.STATIC, 1: BATCH}, "hidden": {1: BATCH}},
    ],
)
def test_names_parameters_and_dynamic_shapes_say_the_same(axes: DynamicAxes) -> None:
    assert resolved(axes, BOUND).of == WANTED


def test_what_is_left_out_is_fixed() -> None:
    assert resolved({}, BOUND) == Axes({}, {})
    assert resolved({"x": None, "hidden": None}, BOUND).of == {}
    assert resolved({"hidden": (None, {1: "n"})}, BOUND).of == {"hidden_c": {1: "n"}}


def test_ranges_of_a_dim_bound_the_sizes_that_are_tried() -> None:
    axes = resolved({"x": {0: Dim("length", min=2, max=9), 1: Dim.DYNAMIC(max=5)}}, BOUND)
    assert axes.of == {"x": {0: "length", 1: "x_1"}}
    assert [axes.allows("length", n) for n in (1, 2, 9, 10)] == [False, True, True, False]
    assert [axes.allows("x_1", n) for n in (1, 5, 6)] == [True, True, False]
    assert axes.allows("other", 1)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"hiden": {1: "batch"}}, r"no input 'hiden'; inputs: x, hidden_h.*Did you mean 'hidden'"),
        ({"x": {2: "batch"}}, "'x' has rank 2, no axis 2"),
        ({"hidden": {3: "batch"}}, "'hidden_h' has rank 3, no axis 3"),
        ({"hidden": ({1: "batch"},)}, "'hidden' has the parts h, c; got"),
        ({"hidden": "batch"}, "'hidden' has the parts h, c; got 'batch'"),
        ({"factor": {0: "batch"}}, "'factor' is the constant 2.0, which has no axes"),
        ({"x": "batch"}, "'x': got 'batch'; wanted {axis: name of its size}"),
        ({"x": ["batch"]}, "'x' has rank 2; got 1 sizes"),
        (({1: BATCH},), r"1 entries; forward is given 3 arguments \(x, hidden, factor\)"),
    ],
)
def test_axes_that_forward_does_not_have_are_named(axes: DynamicAxes, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        resolved(axes, BOUND)


@pytest.mark.parametrize("size", [5, True])
def test_a_fixed_size_is_that_of_the_example(size: int) -> None:
    with pytest.raises(QConfigError, match=f"'x', axis 1 is 4 long; got {size}"):
        resolved({"x": {1: size}}, BOUND)


def test_sizes_that_are_computed_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="computed from another one"):
        resolved({"x": {0: 2 * BATCH}}, BOUND)


@pytest.mark.parametrize(
    ("axes", "batch", "called"),
    [
        ({"x": {0: "batch"}, "s": {1: "batch"}}, "batch", {"x": (0,), "s": (1,)}),
        ({"x": {0: "N", 1: "length"}, "y": {0: "N"}}, "N", {"x": (0,), "y": (0,)}),
        ({"x": {1: "length"}}, None, {}),
        ({"x": {0: "n", 1: "n"}}, "n", {"x": (0, 1)}),
        ({}, None, {}),
    ],
)
def test_the_batch_is_found_under_its_own_or_another_name(
    axes: dict[str, dict[int, str]], batch: str | None, called: dict[str, tuple[int, ...]]
) -> None:
    made = Axes(axes, {})
    assert made.batch == batch
    assert batch is None or made.called(batch) == called


def test_a_sum_of_sizes_follows_its_terms() -> None:
    bound = bind(Model(), (torch.ones(7, 4), State(torch.ones(2, 4, 8), torch.ones(2, 15, 8)), 2.0))
    axes = resolved(
        {"x": {0: "past", 1: "new"}, "hidden_c": {1: "past + new"}, "hidden_h": {2: "a + b"}}, bound
    )
    assert axes.terms("past + new") == ["past", "new"]
    assert axes.terms("past") == axes.terms("a + b") == []
    shapes = {name: x.shape for name, x in axes.resized(bound, "past", 9).tensors.items()}
    assert shapes == {"x": (9, 4), "hidden_h": (2, 4, 8), "hidden_c": (2, 13, 8)}

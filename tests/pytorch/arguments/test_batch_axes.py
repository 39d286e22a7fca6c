from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, fx, nn

from onnxq.errors import ModelError, QConfigError
from onnxq.pytorch import convert, prepare_qat
from onnxq.pytorch.arguments.batch_axes import batch_axes
from onnxq.pytorch.arguments.bound_inputs import bind

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.oracle


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def found(module: nn.Module, *inputs: object) -> dict[str, int]:
    """Input -> its batch axis."""
    axes = batch_axes(module.eval(), bind(module, inputs)).of
    return {name: axis for name, of in axes.items() for axis in of}


class Of(nn.Module):
    """A function of two arguments."""

    def __init__(self, function: Callable[[Any, Any], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: object, y: object = None) -> object:
        return self.function(x, y)


def state(layers: int, batch: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(layers, batch, 16), torch.zeros(layers, batch, 16)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_states_of_a_recurrent_layer_have_their_batch_in_the_middle(batch: int) -> None:
    steps_first = nn.LSTM(8, 16, 2)
    wanted = {"input": 1, "hx_0": 1, "hx_1": 1}
    assert found(steps_first, drawn(7, batch, 8), state(2, batch)) == wanted
    batch_first = nn.LSTM(8, 16, 2, batch_first=True)
    wanted["input"] = 0
    assert found(batch_first, drawn(batch, 7, 8), state(2, batch)) == wanted
    assert found(nn.GRU(8, 16), drawn(7, batch, 8), drawn(1, batch, 16)) == {"input": 1, "hx": 1}


def test_a_state_whose_layers_are_as_many_as_the_rows_is_not_mistaken() -> None:
    cells = nn.ModuleList(nn.GRUCell(16, 16) for _ in range(4))

    def step(x: Tensor, h: Tensor) -> Tensor:
        for cell, inner in zip(cells, h, strict=False):
            x = cell(x, inner)
        return x

    module = Of(lambda x, h: step(x, h[0]))
    assert found(module, drawn(4, 16), (drawn(4, 4, 16),)) == {"x": 0, "y_0": 1}
    assert found(module, drawn(1, 16), (drawn(4, 1, 16),)) == {"x": 0, "y_0": 1}


def test_the_first_axis_is_the_batch_where_forward_takes_any_size() -> None:
    assert found(nn.Linear(3, 2), drawn(4, 3)) == {"input": 0}
    assert found(Of(lambda x, y: x + y), drawn(4, 3), drawn(2, 3).mean(0, keepdim=True)) == {
        "x": 0,
        "y": 0,
    }
    nested = Of(lambda x, _: x["ids"].float().cumsum(1) * x["mask"])
    batch = {"ids": torch.ones(2, 5, dtype=torch.long), "mask": torch.ones(2, 5)}
    assert found(nested, batch) == {"x_ids": 0, "x_mask": 0}


def test_inputs_without_the_batch_are_left_out() -> None:
    masked = Of(lambda x, mask: torch.einsum("ts,sbf->tbf", mask[0], x))
    assert found(masked, drawn(5, 3, 8), (drawn(5, 5),)) == {"x": 1}


def test_one_example_row_of_a_sequence_is_enough() -> None:
    sums = Of(lambda ids, h: ids.cumsum(0)[..., None] + h[0][0])
    ids = torch.tensor([[1], [2], [5]])
    assert found(sums, ids, (drawn(1, 1, 4),)) == {"x": 1, "y_0": 1}


def test_a_batch_inside_of_a_flattened_axis_is_one() -> None:
    words = Of(lambda x, h: (x.cumsum(0) + h[0][-1]).reshape(-1, 8))
    assert found(words, drawn(7, 4, 8), (drawn(2, 4, 8),)) == {"x": 1, "y_0": 1}


def test_axes_whose_rows_depend_on_each_other_are_none() -> None:
    coupled = Of(lambda x, h: x - x.mean() + h[0][0])
    with pytest.raises(ModelError, match=r"Of takes its.*x=float32\[7, 4, 8\].*y_0.*dynamic_axes="):
        found(coupled, drawn(7, 4, 8), (drawn(2, 4, 8),))


def test_batch_norm_of_the_batch_itself_wants_two_rows() -> None:
    norm = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, track_running_stats=False))
    assert found(norm, drawn(4, 8)) == {"input": 0}
    prepared = prepare_qat(norm.train(), inputs=drawn(4, 8))
    prepared(drawn(4, 8))
    assert found(convert(prepared.eval()), drawn(4, 8)) == {"input": 0}


def test_numbers_have_no_batch_and_empty_inputs_none_either() -> None:
    assert found(Of(lambda x, _: x + 1), torch.tensor(1.0)) == {}
    with pytest.raises(QConfigError, match="'x' is empty along axis 1"):
        found(Of(lambda x, _: x), torch.ones(2, 0))


def test_modules_that_assert_their_shapes_are_asked_too() -> None:
    def step(x: Tensor, h: tuple[Tensor]) -> Tensor:
        assert h[0].shape[0] == 2
        return x + h[0][0] + h[0][1]

    assert found(Of(step), drawn(3, 4), (drawn(2, 3, 4),)) == {"x": 0, "y_0": 1}


def test_a_graph_module_prints_nothing_of_trials_that_fail(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            y: Tensor = x @ x.mT + mask
            return y

    assert found(fx.symbolic_trace(Masked()), drawn(3, 6, 4), drawn(6, 6)) == {"x": 0}
    assert capfd.readouterr().err == ""

"""Notes say what only train mode does."""

from __future__ import annotations

import copy
import random
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import onnxq
from onnxq.errors import UnsupportedError
from onnxq.pytorch import convert, export, prepare_qat
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.train_mode import train_mode_notes
from onnxq.pytorch.programs.training_graph import training_graph
from tests.pytorch.programs.nets import Mixed, images

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.oracle


def notes(model: nn.Module, x: Tensor) -> tuple[str, ...]:
    program = program_of(model, x)
    return train_mode_notes(training_graph(copy.deepcopy(model), program), program)


class Masking(nn.Module):
    """Half of the rows are masked in train mode."""

    def forward(self, x: Tensor) -> Tensor:
        """x, or x with rows of 0."""
        if self.training:
            x = x * (torch.rand(x.shape[0], 1) > 0.5)
        return x * 2


class Drawn(nn.Module):
    """A layer that is left out one time in 1000, by the numbers of one generator."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.draw, self.layer = draw, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result, or x."""
        return x if self.training and self.draw() < 1e-3 else self.layer(x)


class Picking(nn.Module):
    """A head that reads the rows of a marked token, as transformers' BART does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """(N, 3)."""
        h = torch.relu(self.layer(x))
        y: Tensor = self.head(h[ids.eq(2), :].view(h.shape[0], -1, h.shape[-1])[:, -1, :])
        return y


def test_rows_that_a_mask_picks_are_fixed_and_the_export_that_works_is_named() -> None:
    x, ids = torch.randn(2, 5, 8), torch.tensor([[7, 5, 8, 5, 2], [5, 6, 6, 8, 2]])
    with pytest.warns(
        UserWarning, match=r"fixes the number of rows.*export it with dynamic_axes=\{\}"
    ):
        prepared = prepare_qat(Picking(), inputs=(x, ids))
    model = export(convert(prepared.eval()), (x, ids), dynamic_axes={})
    feeds = {"x": x.numpy(), "ids": ids.numpy()}
    assert onnxq.cross_check(model, onnxq.Samples([feeds], batch_size=2)).differing == 0


class FixedRows(nn.Module):
    """A layer on rows that a constant is added to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.state = nn.Buffer(torch.randn(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        """(4, 8)."""
        y: Tensor = self.layer(x + self.state)
        return y


def test_rows_that_forward_fixes_are_fixed_and_that_is_said() -> None:
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match=r"fixes the number of rows.*dynamic_axes=\{\}"):
        prepared = prepare_qat(FixedRows(), inputs=x)
    model = export(convert(prepared.eval()), x, dynamic_axes={})
    assert onnxq.cross_check(model, [{"x": x.numpy()}]).differing == 0


class Writing(nn.Module):
    """A layer on what it has written into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        x[:, 0] = x[:, 0] * 2
        y: Tensor = self.layer(x.add_(1))
        return y


def test_example_inputs_stay_as_they_are() -> None:
    x = torch.randn(4, 8)
    before = x.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        export(Writing().eval(), x)
        prepare_qat(Writing(), inputs=x)
    torch.testing.assert_close(x, before, rtol=0, atol=0)


def test_a_cumulative_average_of_batches_is_that_of_the_module() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.BatchNorm1d(8, momentum=None))
    prepared = prepare_qat(copy.deepcopy(module), inputs=torch.randn(4, 8))
    for fake in prepared.modules():
        if isinstance(fake, FakeQuantize):
            fake.disable_fake_quant()
    for _ in range(3):
        x = torch.randn(16, 8)
        module(x), prepared(x)
    norms = [m for m in (*module.modules(), *prepared.modules()) if isinstance(m, nn.BatchNorm1d)]
    assert len(norms) == 2
    torch.testing.assert_close(norms[1].running_var, norms[0].running_var)


def test_updates_of_a_hook_are_named() -> None:
    with pytest.warns(UserWarning, match="leaves 'weight_u', 'weight_v' as they are"):
        prepare_qat(nn.utils.spectral_norm(nn.Linear(8, 8)), inputs=torch.randn(4, 8))


def test_gradients_that_cannot_be_compared_are_said_so() -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = checkpoint(self.last, self.first(x), use_reentrant=True)
            return y

    with (
        pytest.warns(UserWarning, match="gradients were not compared with forward's"),
        pytest.warns(UserWarning, match="None of the inputs have requires_grad"),
    ):
        prepared = prepare_qat(Saving(), inputs=torch.randn(4, 8))
    prepared(torch.randn(4, 8)).sum().backward()


class Strict(nn.Module):
    """Train mode wants labels."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice x."""
        if self.training:
            raise ValueError("labels are missing")
        return x * 2


def test_batch_norm_and_dropout_need_no_note() -> None:
    assert notes(Mixed(), images()) == ()


def test_what_train_mode_does_beside_is_said() -> None:
    (note,) = notes(nn.Sequential(Masking(), nn.Linear(3, 3)), torch.randn(8, 3))
    assert "masks that are drawn" in note


@pytest.mark.parametrize(
    "draw",
    [
        lambda: float(torch.rand(())),
        random.random,
        lambda: float(np.random.random()),  # noqa: NPY002  # what users' modules call
    ],
    ids=["torch", "random", "numpy"],
)
def test_a_layer_that_happens_to_stay_in_is_said(draw: Callable[[], float]) -> None:
    before = random.getstate()
    (note,) = notes(Drawn(draw), torch.randn(8, 3))
    assert "layers left out at random" in note
    assert random.getstate() == before


def test_layers_that_are_never_left_out_need_no_note() -> None:
    model = nn.Sequential(Drawn(lambda: 1 + float(torch.rand(()))), nn.Dropout(0.5))
    assert notes(model, torch.randn(8, 3)) == ()


def test_a_train_mode_that_fails_is_said() -> None:
    (note,) = notes(nn.Sequential(Strict()), torch.randn(8, 3))
    assert "labels are missing" in note


class Auxiliary(nn.Module):
    """A second head in train mode."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Scores, once or twice."""
        y: Tensor = self.fc(x)
        return (y, y) if self.training else y


def test_another_number_of_results_is_refused_unless_eval_mode_is_asked_for() -> None:
    model, x = Auxiliary(), torch.randn(4, 3)
    with pytest.raises(UnsupportedError, match="returns 2 tensors in train mode and 1 tensor in"):
        prepare_qat(model, inputs=x)
    with pytest.warns(UserWarning, match="trains without it"):
        prepare_qat(model.eval(), inputs=x)


class Centred(nn.Module):
    """A layer whose running mean is taken off; draws numbers for its second buffer.

    Args:
        draws: whether it does.
    """

    def __init__(self, draws: bool) -> None:
        super().__init__()
        self.fc, self.draws = nn.Linear(3, 3), draws
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(3))
        self.drawn: Tensor
        self.register_buffer("drawn", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        y: Tensor = self.fc(x)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * y.detach().mean(0))
            if self.draws:
                self.drawn.copy_(1 + torch.rand(3))
        return y - self.mean


def test_updates_that_cannot_be_kept_are_said() -> None:
    assert notes(Centred(draws=False), torch.randn(4, 3)) == ()
    (note,) = notes(Centred(draws=True), torch.randn(4, 3))
    assert "updates 'mean', 'drawn' otherwise" in note or "computes more" in note

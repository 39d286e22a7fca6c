"""Dropouts of train mode are found, though the program is one of eval mode."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.programs.dropouts import (
    DropCall,
    marked_identities,
    seeded_run,
    train_dropouts,
)
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from tests.pytorch.programs.nets import DropPath

pytestmark = pytest.mark.oracle


class Dropping(nn.Module):
    """Dropout by functions: one for training, one that is off, one that is always on."""

    def forward(self, x: Tensor) -> Tensor:
        """x, with holes."""
        x = functional.dropout(x, 0.3 if self.training else 0.0, self.training)
        x = functional.dropout(x, 0.9, training=False)
        return functional.dropout(x, 0.25)


def test_calls_of_train_mode_are_noted_by_module() -> None:
    model = nn.Sequential(Dropping()).eval()
    noted = train_dropouts(model, bind(model, torch.ones(2, 3)))
    assert noted.calls == {"0": (DropCall(0.3, True), DropCall(0.9, False), DropCall(0.25, True))}
    assert not model.training


def test_rates_of_train_mode_are_those_of_the_graph() -> None:
    model, x = nn.Sequential(Dropping()), torch.ones(2000, 3)
    graph = training_graph(model, program_of(model, x))
    with torch.no_grad():
        kept = [float((graph.train(mode)(x) != 0).float().mean()) for mode in (True, False)]
    assert kept[0] == pytest.approx(0.7 * 0.75, abs=0.03)  # 4 deviations of 6000 draws: 0.026
    assert kept[1] == pytest.approx(0.75, abs=0.03)


def test_a_module_in_two_places_drops_in_both() -> None:
    shared, x = Dropping(), torch.ones(2000, 3)
    model = nn.Sequential(shared, shared)
    graph = training_graph(model, program_of(model, x)).train()
    with torch.no_grad():
        kept = float((graph(x) != 0).float().mean())
    assert kept == pytest.approx((0.7 * 0.75) ** 2, abs=0.03)  # 4 deviations of 6000 draws: 0.023


def test_modules_that_do_nothing_in_eval_mode_are_marked_for_the_time() -> None:
    model = nn.Sequential(DropPath(), nn.Identity()).eval()
    with marked_identities(model, bind(model, torch.ones(2, 3))):
        assert "forward" in vars(model[0])
        assert "forward" not in vars(model[1])
    assert "forward" not in vars(model[0])


def test_a_forward_that_a_module_has_of_its_own_comes_back() -> None:
    model = nn.Sequential(DropPath()).eval()
    own = model[0].forward
    model[0].forward = own
    with marked_identities(model, bind(model, torch.ones(2, 3))):
        assert vars(model[0])["forward"] is not own
    assert vars(model[0])["forward"] is own


def test_random_numbers_go_on_as_before() -> None:
    model = Dropping()
    before = torch.random.get_rng_state()
    (first, _), (second, _) = (seeded_run(model, bind(model, torch.ones(2, 3))) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(torch.random.get_rng_state(), before)


class Failing(nn.Module):
    """Train mode that cannot run."""

    def forward(self, x: Tensor) -> Tensor:
        """x."""
        if self.training:
            raise ValueError("no labels")
        return x + 1


def test_a_train_mode_that_fails_is_noted() -> None:
    assert train_dropouts(Failing(), bind(Failing(), torch.ones(2))).failure == "no labels"

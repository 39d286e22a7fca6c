"""The program of a module: eval mode, the batch open, the module as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.programs.program import Open, program_of
from tests.pytorch.programs.nets import Mixed, images

pytestmark = pytest.mark.oracle


def test_the_module_stays_as_it_is() -> None:
    model = Mixed().train()
    model.norm.eval()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    program_of(model, images())
    assert (model.training, model.norm.training, model.drop.training) == (True, False, True)
    for name, x in before.items():
        torch.testing.assert_close(model.state_dict()[name], x, rtol=0, atol=0)


def test_the_batch_is_open() -> None:
    program = program_of(Mixed(), images(1))
    (node,) = [n for n in program.exported.graph.nodes if n.name == "x"]
    assert [isinstance(size, int) for size in node.meta["val"].shape] == [False, True, True, True]
    assert program.axes.of == {"x": {0: "batch"}}


class Branching(nn.Module):
    """A branch on values."""

    def forward(self, x: Tensor) -> Tensor:
        """x, or its negative."""
        return x if x.sum() > 0 else -x


def test_a_branch_on_values_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)Branching cannot be exported .*torch\.where"):
        program_of(Branching(), torch.ones(2, 3))


class Tokens(nn.Module):
    """Rows of features, and a table of eight places."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.places = nn.Parameter(torch.randn(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        y: Tensor = self.fc(x) + self.places[: x.shape[1]]
        return y


class UpTo(nn.Module):
    """Computes large batches in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = self.fc(x)
        return y if x.shape[0] < 26 else y.relu()


def test_a_batch_that_forward_branches_on_is_refused_with_its_bound() -> None:
    with pytest.raises(UnsupportedError, match=r"violated \(batch\).* satisfy .*<= 25"):
        program_of(UpTo(), torch.randn(16, 4))


@pytest.mark.parametrize(("left_open", "is_open"), [(Open.BATCH, False), (Open.LENGTHS, True)])
def test_lengths_are_open_on_request(left_open: Open, is_open: bool) -> None:
    exported = program_of(Tokens(), torch.ones(2, 5, 4), left_open=left_open).exported
    (node,) = [n for n in exported.graph.nodes if n.name == "x"]
    batch, length, features = (not isinstance(size, int) for size in node.meta["val"].shape)
    assert (batch, length, features) == (True, is_open, False)


class OneLength(Tokens):
    """Looks at the length, so that the graph is of one."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return super().forward(x) if x.shape[1] == 5 else x


def test_a_length_that_is_fixed_is_noted() -> None:
    inputs = torch.ones(2, 5, 4)
    assert program_of(Tokens(), inputs, left_open=Open.LENGTHS).notes == ()
    (note,) = program_of(OneLength(), inputs, left_open=Open.LENGTHS).notes
    assert "fixes the length of 'x' along axis 1" in note

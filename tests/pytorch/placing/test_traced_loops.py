"""Loops over what a tensor is split into, which are traced for the example's number of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch import convert, disable_observer, prepare_qat
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.placing.tracing import trace

if TYPE_CHECKING:
    from collections.abc import Callable


class C2f(nn.Module):
    """YOLOv8's block, as it is written there."""

    def __init__(self) -> None:
        super().__init__()
        self.cv1, self.cv2 = nn.Conv2d(3, 8, 1), nn.Conv2d(16, 4, 1)
        self.m = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, H, W)."""
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(m(y[-1]) for m in self.m)
        result: Tensor = self.cv2(torch.cat(y, 1))
        return result


class Given(nn.Module):
    """A linear layer, then what the test gives."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(6, 6), then

    def forward(self, x: Tensor) -> Tensor:
        """What `then` gives."""
        return self.then(self.layer(x))


def summed(x: Tensor) -> Tensor:
    total = torch.zeros(())
    for position, part in enumerate(x.split(2, 1)):  # type: ignore[no-untyped-call]  # of torch
        total = total + position * part
    return total


def rest(x: Tensor) -> Tensor:
    first, *others = x.chunk(3, 1)
    return first - torch.cat(others, 1).sum(1, keepdim=True)


LOOPS: dict[str, Callable[[Tensor], Tensor]] = {
    "for over split": summed,
    "starred target": rest,
    "unbind": lambda x: torch.stack([part.relu() for part in x.unbind(1)], 1),
    "starred argument": lambda x: torch.cat([*x.chunk(2, 1), x], 1),
    "sizes": lambda x: x.reshape(*x.shape[:1], 2, 3),
    "rows of a tensor": lambda x: torch.stack(list(x.t())),
    "in place before": lambda x: torch.cat(list((x + 0).mul_(2).chunk(2, 1)), 1),
}


@pytest.mark.parametrize("case", LOOPS)
def test_a_loop_is_traced_and_computes_the_same(case: str) -> None:
    model, x, more = Given(LOOPS[case]), torch.randn(2, 6), torch.randn(5, 6)
    kept = x.clone()
    graph = trace(model, bind(model, x))
    assert torch.equal(graph(more), model(more))
    assert torch.equal(x, kept)


def test_c2f_trains_converts_and_exports() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    prepared = prepare_qat(C2f(), inputs=x)
    prepared(x).sum().backward()
    prepared.apply(disable_observer)
    model = onnxq.export(convert(prepared.eval()), x)
    assert [n.op_type for n in model.graph].count("Conv") == 4
    found = onnxq.cross_check(model, {"x": x.numpy()}, batch_size=2)
    assert found.exact


def test_another_number_of_parts_is_refused() -> None:
    model = Given(lambda x: torch.cat([part * 2 for part in x.unbind(0)]))
    graph = trace(model, bind(model, torch.randn(2, 6)))
    with pytest.raises(ModelError, match="takes 3 parts of a tuple; it was traced for the 2"):
        graph(torch.randn(3, 6))


def test_inputs_that_forward_does_not_take_before_a_loop_are_refused() -> None:
    model = Given(summed)
    with pytest.raises(ModelError, match="fails on example inputs at 'layer'"):
        trace(model, bind(model, torch.randn(2, 5)))


@pytest.mark.parametrize(
    ("then", "remedy"),
    [
        (lambda x: sum(x[:, i] for i in range(x.shape[1])), "loop over the parts"),
        (lambda x: x * len(x), "x.shape"),
        (lambda x: x if x.sum() > 0 else -x, "torch.where"),
        (lambda x: torch.cat([*x.sum()]), "by index or key"),
    ],
)
def test_what_cannot_be_traced_names_a_remedy_that_fits(
    then: Callable[[Tensor], Tensor], remedy: str
) -> None:
    model = Given(then)
    with pytest.raises(UnsupportedError, match=remedy):
        trace(model, bind(model, torch.randn(2, 6)))

"""compare: the integers of a traced module against those of ONNX Runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.deployed import Feeding, compare


class Joined(nn.Module):
    """Two convolutions side by side, of one scale, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
        self.after = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 8, 6, 6)."""
        both = torch.cat([self.left(x).relu(), self.right(x).relu()], 1)
        y: Tensor = both + self.after(both)
        return y


@cache
def joined() -> tuple[Any, Any, Any, Tensor]:
    """(fake-quantized, converted, exported, inputs)."""
    torch.manual_seed(0)
    x = torch.randn(16, 3, 8, 8)
    trained: Any = prepare_qat(Joined(), inputs=x).apply(disable_observer).eval()
    quantized = convert(trained)
    return trained, quantized, export(quantized, x), x


@pytest.mark.parametrize("feeding", Feeding)
@pytest.mark.parametrize("which", [0, 1])
def test_every_rounded_tensor_is_compared(which: int, feeding: Feeding) -> None:
    trained, quantized, model, x = joined()
    module = (trained, quantized)[which]
    found = compare(module, model, [x[:8], x[8:]], feeding)
    rounded = [n for n in module.graph.nodes if n.name.endswith("_fake_quant")]
    assert set(found.tensors) == {node.name for node in rounded}
    assert len({one.tensor for one in found.tensors.values()}) == len(rounded)
    assert all(one.largest <= 1 and one.share >= 0.998 for one in found.tensors.values())
    assert (found.rows, found.agreement) == (16, 1.0)


class Biased(nn.Module):
    """A table read at fixed places, as Swin's relative position bias, and up to a length."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.table, self.index = nn.Parameter(torch.randn(9, 8)), torch.tensor([3, 0, 7, 3])

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, 8)."""
        biased = self.first(x) + self.table[self.index].view(4, 8) + self.table[: x.shape[1]]
        y: Tensor = self.last(biased)
        return y


@pytest.mark.parametrize("feeding", Feeding)
def test_what_is_computed_from_parameters_alone_is_left_out(feeding: Feeding) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4, 8)
    trained: Any = prepare_qat(Biased(), inputs=x).apply(disable_observer).eval()
    found = compare(trained, export(trained, x), [x], feeding)
    names = {"x_fake_quant", "first_fake_quant", "add_fake_quant", "add_1_fake_quant"}
    assert set(found.tensors) == names  # the last layer gives float32
    assert all(one.largest <= 1 for one in found.tensors.values())


def test_a_module_that_went_on_training_is_refused() -> None:
    trained, _, model, x = joined()
    moved = fx.GraphModule(trained, trained.graph)
    fake = moved.get_submodule("x_fake_quant")
    scale: Any = fake.scale
    with torch.no_grad():
        scale.mul_(1.5)
    try:
        with pytest.raises(UnsupportedError, match="as it is now"):
            compare(moved, model, [x], Feeding.FREE_RUNNING)
    finally:
        with torch.no_grad():
            scale.div_(1.5)


def test_a_module_with_stubs_is_refused() -> None:
    stubbed: Any = nn.Linear(2, 2)
    with pytest.raises(UnsupportedError, match="got a Linear"):
        compare(stubbed, joined()[2], [], Feeding.FREE_RUNNING)

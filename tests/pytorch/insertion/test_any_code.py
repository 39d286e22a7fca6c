"""Code that a graph of torch.fx does not take trains, or stays float in part, and is deployed."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import onnxq
from onnxq.pytorch import (
    annotate,
    convert,
    disable_observer,
    export,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.train.annotations import ANNOTATIONS

if TYPE_CHECKING:
    from onnxq.pytorch.train.annotations import Annotations

pytestmark = pytest.mark.oracle


class ShapeBranch(nn.Module):
    """Looks at shapes and dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, H, W)."""
        _, channels, _, width = x.shape
        assert channels == 3
        if width % 2:
            x = x[..., :-1]
        y: Tensor = self.conv(x).clamp(min=torch.finfo(x.dtype).min)
        return y


class AddedConstant(nn.Module):
    """A tensor that forward makes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = self.second(self.first(x) + torch.arange(8))
        return y


class InPlaceSlice(nn.Module):
    """A write into a part."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y = self.first(x)
        y[:, 0] *= 0.5
        z: Tensor = self.second(y)
        return z


class BareLora(nn.Module):
    """A layer and a MatMul of two small matrices beside, as parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        self.down, self.up = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        weight = self.base.weight + self.up @ self.down
        y: Tensor = self.head(functional.linear(x, weight, self.base.bias))
        return y


class BareWeight(nn.Module):
    """A MatMul with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.fc = nn.Parameter(torch.randn(8, 8)), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = self.fc(torch.relu(x @ self.w))
        return y


class Standardized(nn.Conv2d):
    """A convolution whose weight is standardized."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W)."""
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        weight = (self.weight - mean) / self.weight.std((1, 2, 3), keepdim=True)
        return functional.conv2d(x, weight, self.bias)


class C2f(nn.Module):
    """A loop over parts: YOLOv8's block, as it is written there."""

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


class Channels(nn.Module):
    """Says how many channels it wants."""

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of x's shape."""
        _, channels = x.shape
        assert channels == 8
        return x.relu()


class Smallest(nn.Module):
    """Asks for the range of a type."""

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of x's shape."""
        return x.masked_fill(x < 0, torch.finfo(x.dtype).min).softmax(-1)


def rows() -> Tensor:
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


def images() -> Tensor:
    return torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))


def sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), *layers, nn.Linear(8, 4))


CASES = {
    "branch on a shape": (ShapeBranch, images),
    "rms norm": (lambda: sequential(nn.RMSNorm(8)), rows),
    "padding mode": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")),
        images,
    ),
    "added constant": (AddedConstant, rows),
    "weight norm": (lambda: sequential(parametrizations.weight_norm(nn.Linear(8, 8))), rows),
    "spectral norm": (lambda: sequential(parametrizations.spectral_norm(nn.Linear(8, 8))), rows),
    "old weight norm": (lambda: sequential(nn.utils.weight_norm(nn.Linear(8, 8))), rows),
    "standardized weight": (lambda: nn.Sequential(Standardized(3, 4, 3), nn.ReLU()), images),
    "assert on channels": (lambda: sequential(Channels()), rows),
    "smallest number": (lambda: sequential(Smallest()), rows),
    "padding by copies": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, padding_mode="replicate"),
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        ),
        images,
    ),
    "bare lora": (BareLora, rows),
    "bare weight": (BareWeight, rows),
    "loop over parts": (C2f, images),
    "sync batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.SyncBatchNorm(4), nn.ReLU()),
        images,
    ),
    "write into a part": (InPlaceSlice, rows),
}


def _name(model: nn.Module) -> str:
    return next(iter(inspect.signature(model.forward).parameters))


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm.*:FutureWarning")
@pytest.mark.parametrize("name", CASES)
def test_it_trains_and_is_deployed_as_trained(name: str) -> None:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    model, x = make().train(), inputs()
    prepared = prepare_qat(model, inputs=x)
    found: Annotations = prepared.meta[ANNOTATIONS]  # type: ignore[assignment,index]  # of a graph
    assert found.weights, "the layers are quantized"
    names = dict(model.named_parameters())
    assert names.keys() <= dict(prepared.named_parameters(remove_duplicate=False)).keys()
    optimizer = torch.optim.SGD(prepared.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    assert all(p.grad is not None for p in prepared.parameters())
    prepared.apply(disable_observer).eval()
    converted = convert(copy.deepcopy(prepared))
    with torch.no_grad():
        torch.testing.assert_close(converted(x), prepared(x), rtol=0, atol=0)
    findings = onnxq.cross_check(
        export(converted, x), onnxq.Samples({_name(model): x.numpy()}, batch_size=len(x))
    )
    assert findings.exact


def test_a_compiled_module_trains_as_the_module_in_it() -> None:
    torch.manual_seed(0)
    model, x = sequential(nn.ReLU()), rows()
    compiled: Any = torch.compile(copy.deepcopy(model), backend="eager")
    prepared = prepare_qat(compiled, inputs=x)
    assert list(dict(prepared.named_parameters())) == list(dict(model.named_parameters()))
    with torch.no_grad():
        assert torch.equal(prepared(x), prepare_qat(model, inputs=x)(x))


def test_the_layer_behind_an_rms_norm_is_quantized() -> None:
    """The exporter ends such a norm with a CastLike, which its optimizer leaves out."""
    annotated = annotate(sequential(nn.RMSNorm(8)), rows())
    assert len(annotated.weights) == 2
    assert not any("has no place" in why for why in annotated.floats.values())


class Attentions(nn.Module):
    """Attention on the result of attention: two transposes in between cancel out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(N, tokens, 8)."""
        y, _ = self.first(x, x, x, need_weights=False)
        z: Tensor = self.second(y, y, y, need_weights=False)[0]
        return z


def test_a_layer_behind_transposes_that_cancel_out_is_quantized() -> None:
    assert len(annotate(Attentions(), torch.randn(3, 5, 8)).weights) == 4


def test_a_given_weight_with_batch_norm_is_folded_where_nothing_is_trained() -> None:
    model = nn.Sequential(Standardized(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    x = images()
    model.train()(x)
    prepared = prepare(model.eval(), inputs=x)
    with torch.no_grad():
        prepared(x)
        wanted, got = model(x), convert(prepared)(x)
    assert float((got - wanted).norm() / wanted.norm()) < 0.05  # 8 bits: 26 dB, other weights: 0


class Steps(nn.Module):
    """Rows of any number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, 4)."""
        y: Tensor = self.second(torch.relu(self.first(x)))
        return y


def test_other_lengths_and_a_last_small_batch_train() -> None:
    prepared = prepare_qat(Steps(), inputs=torch.randn(4, 6, 8))
    for shape in ((4, 6, 8), (4, 3, 8), (1, 9, 8)):
        y: Tensor = prepared(torch.randn(shape))
        assert y.shape[:2] == shape[:2]
        y.sum().backward()  # type: ignore[no-untyped-call]  # torch's

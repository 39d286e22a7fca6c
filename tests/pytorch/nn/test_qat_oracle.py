"""The QAT modules train as torch.ao's do with plain FakeQuantize: same results, same gradients.

Weights on [-127, 127]: with torch's default range the largest weight of a channel is a tie, 127.5,
which x / scale and torch's x * (1 / scale) round apart.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.qconfig import (
    QConfig,
    default_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
)

if TYPE_CHECKING:
    from collections.abc import Callable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch.ao.nn.intrinsic as theirs_float
    import torch.ao.nn.intrinsic.qat as theirs_fused
    import torch.ao.nn.qat as theirs_plain
    from torch.ao import quantization

theirs: Any = quantization  # untyped

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

NARROW: dict[str, Any] = {"quant_min": -127, "quant_max": 127}
PER_TENSOR = QConfig(default_fake_quant, default_weight_fake_quant.with_args(**NARROW))
PER_CHANNEL = QConfig(default_fake_quant, default_per_channel_weight_fake_quant.with_args(**NARROW))


def their_qconfig(per_channel: bool) -> Any:
    kind = "MovingAveragePerChannelMinMaxObserver" if per_channel else "MovingAverageMinMaxObserver"
    weight = theirs.FakeQuantize.with_args(
        observer=getattr(theirs, kind),
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        **NARROW,
        **({"ch_axis": 0} if per_channel else {}),
    )
    return theirs.QConfig(theirs.default_fake_quant, weight)


def convbn(kind: type[nn.Module], rank: int, bias: bool, **arguments: Any) -> nn.Module:
    conv: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    norm: Any = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
    bn = norm(8)
    nn.init.uniform_(bn.weight, -2, 2)
    nn.init.normal_(bn.bias)
    nn.init.normal_(bn.running_mean)
    nn.init.uniform_(bn.running_var, 0.5, 3)
    parts = [conv(4, 8, 3, bias=bias, **arguments), bn]
    return kind(*parts, *([nn.ReLU()] if "ReLU" in kind.__name__ else []))


CASES: dict[str, Callable[[], nn.Module]] = {
    "ConvBn1d": lambda: convbn(intrinsic.ConvBn1d, 1, bias=True),
    "ConvBn2d": lambda: convbn(intrinsic.ConvBn2d, 2, bias=True, groups=2, stride=2),
    "ConvBn3d": lambda: convbn(intrinsic.ConvBn3d, 3, bias=False),
    "ConvBnReLU1d": lambda: convbn(intrinsic.ConvBnReLU1d, 1, bias=False, dilation=2),
    "ConvBnReLU2d": lambda: convbn(intrinsic.ConvBnReLU2d, 2, bias=False, padding=1),
    "ConvBnReLU3d": lambda: convbn(intrinsic.ConvBnReLU3d, 3, bias=True),
    "ConvReLU1d": lambda: intrinsic.ConvReLU1d(nn.Conv1d(4, 8, 3), nn.ReLU()),
    "ConvReLU2d": lambda: intrinsic.ConvReLU2d(nn.Conv2d(4, 8, 3), nn.ReLU()),
    "ConvReLU3d": lambda: intrinsic.ConvReLU3d(nn.Conv3d(4, 8, 3), nn.ReLU()),
    "LinearReLU": lambda: intrinsic.LinearReLU(nn.Linear(4, 8), nn.ReLU()),
    "LinearBn1d": lambda: intrinsic.LinearBn1d(nn.Linear(4, 8), nn.BatchNorm1d(8)),
    "Conv1d": lambda: nn.Conv1d(4, 8, 3, padding=2, padding_mode="reflect"),
    "Conv2d": lambda: nn.Conv2d(4, 8, 3, padding="same"),
    "Conv3d": lambda: nn.Conv3d(4, 8, 3),
    "Linear": lambda: nn.Linear(4, 8, bias=False),
}


def pair(name: str, per_channel: bool) -> tuple[Any, Any]:
    """(onnxq's module, torch's), of the same float module."""
    torch.manual_seed(0)
    module = CASES[name]().train()
    foreign: Any = copy.deepcopy(module)
    if isinstance(foreign, nn.Sequential):
        foreign = getattr(theirs_float, name)(*foreign).train()
    for m in module.modules():
        m.qconfig = PER_CHANNEL if per_channel else PER_TENSOR  # type: ignore[assignment]
    for m in foreign.modules():
        m.qconfig = their_qconfig(per_channel)
    own: Any = fused if hasattr(fused, name) else qat
    their: Any = theirs_fused if hasattr(theirs_fused, name) else theirs_plain
    return getattr(own, name).from_float(module), getattr(their, name).from_float(foreign).train()


def example(module: nn.Module) -> torch.Tensor:
    rank = next((r for r in (1, 2, 3) if isinstance(module, getattr(nn, f"Conv{r}d"))), 0)
    return torch.randn(5, 4, *[5 if rank == 3 else 7] * rank)  # short sums: few roundings


def compare(ours: Any, theirs: Any, x: torch.Tensor) -> None:
    """Results and gradients, within 16 roundings of float32 of the largest."""
    results, gradients = [], []
    for module in (ours, theirs):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        y = module(leaf)
        torch.manual_seed(1)
        y.backward(torch.randn_like(y))
        results.append(y.detach())
        gradients.append({"x": leaf.grad, **{n: p.grad for n, p in module.named_parameters()}})
    assert gradients[0].keys() == gradients[1].keys()
    pairs = [results, *([gradients[0][n], gradients[1][n]] for n in gradients[0])]
    for own, their in pairs:
        bound = 2**-20 * float(their.abs().max().clamp_min(1))
        assert float((own - their).abs().max()) <= bound


@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_torchs(name: str, per_channel: bool) -> None:
    ours, theirs = pair(name, per_channel)
    for _ in range(3):  # running statistics, and scales, follow
        compare(ours, theirs, example(ours))
    for module in (ours, theirs):
        if hasattr(module, "freeze_bn_stats"):
            module.freeze_bn_stats()
    compare(ours, theirs, example(ours))
    compare(ours.eval(), theirs.eval(), example(ours))


@pytest.mark.parametrize("name", CASES)
def test_names_of_parameters_and_buffers_are_torchs(name: str) -> None:
    ours, theirs = pair(name, per_channel=True)

    def kept(module: nn.Module) -> set[str]:
        """All but what the observers know, which has a form of its own."""
        theirs, ours = ("activation_post_process",), ("seen", "has_observed", "left_out")
        ends = ("min_val", "max_val")
        known = tuple(f"weight_fake_quant.{name}" for name in (*theirs, *ours, *ends))
        return {k for k in module.state_dict() if not k.startswith(known)}

    assert kept(ours) == kept(theirs)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]

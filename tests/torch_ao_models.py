"""Small models, and what torch.ao makes of them: the oracles of the importers."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.ao import quantization as tq
from torch.ao.nn import intrinsic as nni
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization import quantize_fx
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """A context in which torch packs weights for that engine, and is silent about its end."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.quantized.engine = before


def seeded(model: nn.Module) -> nn.Module:
    """The model with batch norms that do something."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.1)  # type: ignore[arg-type]  # a buffer
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
    return model


class Plain(nn.Module):
    """Convolutions with batch norm, a residual sum, pools and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1, self.r1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.c2 = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.b2 = nn.BatchNorm2d(8)
        self.pool, self.average = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.r1(self.b1(self.c1(x)))
        x = torch.relu(x + self.b2(self.c2(x)))
        return self.fc(self.average(self.pool(x)).flatten(1))  # type: ignore[no-any-return]


class Stubbed(Plain):
    """Plain, with what eager mode needs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant, self.sum = tq.QuantStub(), tq.DeQuantStub(), FloatFunctional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.r1(self.b1(self.c1(self.quant(x))))
        x = self.sum.add_relu(x, self.b2(self.c2(x)))
        return self.dequant(self.fc(self.average(self.pool(x)).flatten(1)))  # type: ignore[no-any-return]


FUSED = [["c1", "b1", "r1"], ["c2", "b2"]]


def eager(backend: str, model: nn.Module | None = None) -> nn.Module:
    """Observed by eager mode."""
    with engine(backend):
        made = seeded(model or Stubbed()).eval()
        if model is None:
            made = tq.fuse_modules(made, FUSED)
        made.qconfig = tq.get_default_qconfig(backend)
        prepared: nn.Module = tq.prepare(made)
        prepared(IMAGES)
        return prepared


def qat(backend: str = "fbgemm", *, fuse: object = True, qconfig: Any = None) -> nn.Module:
    """Trained a little by eager mode."""
    with engine(backend):
        made = seeded(Stubbed()).train()
        made.qconfig = qconfig or tq.get_default_qat_qconfig(backend)
        if fuse:
            made = tq.fuse_modules_qat(made, FUSED)
        prepared: nn.Module = tq.prepare_qat(made)
        for _ in range(3):
            prepared(torch.randn(4, 3, 16, 16))
        return prepared.eval().apply(tq.disable_observer)  # which eval mode leaves on


def one_signed() -> Any:
    """Trained by the default qconfig; channels 2 and 3 of c1 have one sign, 4 is zero."""
    with engine("fbgemm"):
        model: Any = seeded(Stubbed()).train()
        with torch.no_grad():
            weight = model.c1.weight
            weight[2], weight[3], weight[4] = weight[2].abs(), -weight[3].abs(), 0
        model.qconfig = tq.get_default_qat_qconfig("fbgemm")
        prepared = tq.prepare_qat(model)
        prepared(IMAGES)
        return prepared.eval().apply(tq.disable_observer)


def fx(backend: str = "fbgemm", *, trained: object = False) -> nn.Module:
    """Observed, or trained a little, by FX graph mode."""
    with engine(backend):
        model = seeded(Plain())
        if not trained:
            mapping = tq.get_default_qconfig_mapping(backend)
            made: nn.Module = quantize_fx.prepare_fx(model.eval(), mapping, (IMAGES,))
            made(IMAGES)
            return made
        mapping = tq.get_default_qat_qconfig_mapping(backend)
        made = quantize_fx.prepare_qat_fx(model.train(), mapping, (IMAGES,))
        for _ in range(3):
            made(torch.randn(4, 3, 16, 16))
        return made.eval().apply(tq.disable_observer)


def converted(prepared: nn.Module, backend: str = "fbgemm") -> nn.Module:
    """By torch.ao's own convert."""
    with engine(backend):
        if isinstance(prepared, torch.fx.GraphModule):
            made: nn.Module = quantize_fx.convert_fx(prepared)
            return made
        return tq.convert(prepared)  # type: ignore[no-any-return]


def outputs(model: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Outputs of the model as a list, without gradients."""
    with torch.no_grad():
        result = model(*inputs)
    return [result] if isinstance(result, torch.Tensor) else list(result)


class Operators(nn.Module):
    """One quantized operator per result, all on the same quantized input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.quant = tq.QuantStub()
        self.ends = nn.ModuleList([tq.DeQuantStub() for _ in range(34)])
        self.conv, self.strided = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, 2, bias=False)
        self.conv_relu = nni.ConvReLU2d(nn.Conv2d(3, 8, 1), nn.ReLU())
        self.depthwise = nn.Conv2d(3, 3, 3, groups=3, padding=2, dilation=2)
        self.reflect = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        self.linear, self.conv1d = nn.Linear(16, 8), nn.Conv1d(3, 4, 3)
        self.linear_relu = nni.LinearReLU(nn.Linear(16, 8), nn.ReLU())
        self.sums: Any = nn.ModuleList([FloatFunctional() for _ in range(5)])
        self.norms = nn.ModuleList(
            [
                nn.BatchNorm2d(3),
                nn.LayerNorm(16),
                nn.GroupNorm(3, 3),
                nn.InstanceNorm2d(3, affine=True),
            ]
        )
        self.curves = nn.ModuleList(
            [nn.Hardswish(), nn.LeakyReLU(0.1), nn.ELU(), nn.Sigmoid(), nn.Tanh(), nn.Hardsigmoid()]
        )
        self.relu6 = nn.ReLU6()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        q = self.quant(x)
        positive = functional.relu(q)
        add, mul, cat, add_relu, number = self.sums
        found = {
            name: getattr(self, name)(q)
            for name in (
                "conv",
                "strided",
                "conv_relu",
                "depthwise",
                "reflect",
                "linear",
                "linear_relu",
            )
        }
        found |= {type(part).__name__: part(q) for part in (*self.norms, *self.curves, self.relu6)}
        found |= {
            "conv1d": self.conv1d(q[:, :, 0]),
            "relu": positive,
            "add": add.add(q, positive),
            "mul": mul.mul(q, positive),
            "cat": cat.cat([q, positive], 1),
            "add_relu": add_relu.add_relu(q, q),
            "plus": number.add_scalar(q, 0.5),
            "times": number.mul_scalar(q, -2.0),
            "average": functional.avg_pool2d(q, 2),
            "global": functional.adaptive_avg_pool2d(q, 1),
            "largest": functional.max_pool2d(q, 2),
            "mean": q.mean((2, 3)),
            "larger": functional.interpolate(q, scale_factor=2.0, mode="nearest"),
            "clamped": torch.clamp(q, -1, 1),
            "moved": q.permute(0, 2, 3, 1).reshape(q.shape[0], -1),
            "chunk": q.chunk(2, 2)[1],
        }
        return {name: end(y) for (name, y), end in zip(found.items(), self.ends, strict=False)}

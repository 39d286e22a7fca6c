"""Trained and calibrated torch.ao models, converted with the numbers they were trained with.

torch.ao.quantization.convert computes scales and zero points anew, from the observers, by another
formula than FusedMovingAvgObsFakeQuantize (the default of every QAT qconfig) trains with:

    trained    C++ ChooseQuantizationParams, in the buffers scale and zero_point
    convert    Python calculate_qparams: symmetric scales differ by 0.4%

Here the buffers win. They hold one known bug: where all weights of a channel have one sign, the C++
code gives asymmetric qparams (zero point -128 or 127, half the scale) although symmetric ones were
asked for; a channel of zeros too. ONNX Runtime's kernels want zero points of 0, so that these
channels are rounded with the symmetric scale max|w| / quant_max, with a warning.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.ao import quantization as tq
from torch.ao.quantization.quantize_fx import convert_fx

from onnxq.errors import CalibrationError, UnsupportedError, counted
from onnxq.pytorch.importers.notes import note

_SYMMETRIC = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
_MAX_NAMED = 8  # channels in a warning; the rest are counted
_TINY = 1e-30  # batch norm slopes below it leave nothing of a channel


def is_prepared(model: nn.Module) -> bool:
    """Whether the model holds observers or fake quantizes of torch.ao."""
    return any(isinstance(m, tq.FakeQuantizeBase | tq.ObserverBase) for m in model.modules())


def convert_as_trained(model: nn.Module) -> nn.Module:
    """A converted copy of a prepared model, eager or FX, with the qparams of its buffers."""
    _check_observed(model)
    made = copy.deepcopy(model).eval()
    for path, module in made.named_modules():
        if isinstance(getattr(module, "weight_fake_quant", None), tq.FakeQuantizeBase):
            _keep_trained_weight(path, module)
    for module in made.modules():
        if isinstance(module, tq.FakeQuantizeBase) and "calculate_qparams" not in vars(module):
            _use_buffers(module)
    try:
        if isinstance(made, fx.GraphModule):
            converted: nn.Module = convert_fx(made)
            return converted
        tq.convert(made, inplace=True)  # type: ignore[no-untyped-call]  # torch's
    except (AttributeError, AssertionError, KeyError, RuntimeError, ValueError) as error:
        raise UnsupportedError(
            f"torch.ao.quantization cannot convert this model: {' '.join(str(error).split())[:300]}"
            " Convert it yourself and import the result."
        ) from error
    return made


def _check_observed(model: nn.Module) -> None:
    watching = [m for m in model.modules() if isinstance(m, tq.ObserverBase)]
    ranges = [getattr(m, "min_val", None) for m in watching]
    known = [r for r in ranges if isinstance(r, torch.Tensor)]
    if known and not any(r.numel() and r.isfinite().all() for r in known):
        raise CalibrationError(
            f"none of the model's {len(known)} observers has seen data: run it on samples, or "
            "train it, before it is imported."
        )


def _use_buffers(fake: nn.Module) -> None:
    """Makes `calculate_qparams` give the buffers."""
    scale, zero_point = (getattr(fake, name, None) for name in ("scale", "zero_point"))
    if isinstance(scale, torch.Tensor) and isinstance(zero_point, torch.Tensor):
        fixed = scale.detach().clone(), zero_point.detach().clone()
        fake.calculate_qparams = lambda: fixed  # type: ignore[assignment]  # of this fake alone


# --- weights


@dataclass(slots=True)
class _Trained:
    """A fake-quantized weight, all arrays with the channels first."""

    real: Tensor
    scale: Tensor
    zero_point: Tensor
    qmin: int
    qmax: int


def _keep_trained_weight(path: str, module: Any) -> None:
    """Rounds the weight to the levels that training used, symmetric in every channel."""
    fake = module.weight_fake_quant
    slope = _batch_norm_slope(module)
    folded = module.weight.detach().float() * slope
    trained = _quantized_weight(folded, fake)
    asked_symmetric = fake.qscheme in _SYMMETRIC
    odd = trained.zero_point != 0
    if bool(odd.any()):
        _symmetrize(trained, odd)
        _warn(path, odd, asked_symmetric)
    weight = trained.real.to(folded.dtype)
    module.weight = nn.Parameter(
        torch.where(slope.abs() > _TINY, weight / slope, module.weight.detach())
    )
    fixed = trained.scale.clone(), torch.zeros_like(trained.zero_point)
    fake.calculate_qparams = lambda: fixed


def _batch_norm_slope(module: Any) -> Tensor:
    """Gain gamma / sqrt(running_var + eps) per channel of the weight; 1 where no norm follows."""
    norm = getattr(module, "bn", None)
    ones = [1] * (module.weight.ndim - 1)
    if norm is None:
        return torch.ones(1, *ones)
    slope = norm.weight.detach() * torch.rsqrt(norm.running_var + norm.eps)
    shaped: Tensor = slope.reshape(-1, *ones)
    return shaped


def _quantized_weight(weight: Tensor, fake: Any) -> _Trained:
    """The weight as torch's fake quantization leaves it: rint(w * (1 / scale)) + zero_point."""
    if fake.is_per_channel and fake.ch_axis != 0:
        raise UnsupportedError(
            f"a weight has its channels along axis {fake.ch_axis}; wanted 0. Use a qconfig whose "
            "weights are per channel along axis 0, or per tensor."
        )
    scale = fake.scale.detach().reshape(-1).float()
    zero_point = fake.zero_point.detach().reshape(-1).to(torch.int64)
    ones = [1] * (weight.ndim - 1)
    s, z = scale.reshape(-1, *ones), zero_point.reshape(-1, *ones)
    integers = torch.round(weight * (1.0 / s)) + z
    real = (integers.clamp(fake.quant_min, fake.quant_max) - z) * s
    if not bool(fake.fake_quant_enabled[0]):
        real = weight
    return _Trained(real, scale, zero_point, fake.quant_min, fake.quant_max)


def _symmetrize(trained: _Trained, odd: Tensor) -> None:
    """Gives the channels that are odd the scale max|w| / qmax, and the zero point 0."""
    rows = trained.real.reshape(len(odd), -1)
    largest = rows.abs().amax(1)
    wanted = torch.where(largest > 0, largest / trained.qmax, trained.scale)
    trained.scale = torch.where(odd, wanted, trained.scale)
    trained.zero_point = torch.zeros_like(trained.zero_point)
    s = trained.scale.reshape(-1, *[1] * (trained.real.ndim - 1))
    integers = torch.round(trained.real / s).clamp(trained.qmin, trained.qmax)
    trained.real = integers * s


def _warn(path: str, odd: Tensor, asked_symmetric: object) -> None:
    channels = [str(int(i)) for i in torch.nonzero(odd).reshape(-1)]
    what = f"channels {counted(channels, _MAX_NAMED)}" if odd.numel() > 1 else "the tensor"
    why = (
        "though its qconfig asks for symmetric ones: a known bug of torch's "
        "FusedMovingAvgObsFakeQuantize where all weights have one sign, or are 0"
        if asked_symmetric
        else "as its qconfig asks"
    )
    note(
        f"'{path}': {what} of the weight were trained with asymmetric qparams, {why}. They are "
        "rounded to symmetric levels, at most one scale away. To deploy what is trained, train "
        "with onnxq.pytorch.FakeQuantize, or with torch's FakeQuantize (not the fused one)."
    )

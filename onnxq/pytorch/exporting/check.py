"""Compares an exported model with the module it came from, on real inputs.

Both compute the same sums in another order, so they may differ by float rounding and nothing else.
One dot product of K terms is off by about sqrt(K) * u of its size (u = 2^-24 in float32: rounding
errors of random sign), and a chain of L layers adds up at most L of these, so that

    |exported - module| <= SAFETY * L * sqrt(K) * u * max|module|

per output, where L counts the weights with two or more axes, as floats or integers, and K is the
largest number of terms that an output element sums over. For ResNet-20 that is 2.5e-4 of the
largest logit; measured are 5e-7.
A wrong translation (another GELU, another padding) shows at 1e-3 and above.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from onnxq.errors import ModelError, UnsupportedError, VerificationError
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, compute, described, flatten
from onnxq.pytorch.nn.quantized.stored import Stored

SAFETY = 8  # layers that amplify (normalization of small values) and few, correlated errors

Arrays = Sequence[npt.NDArray[np.generic]]
Pair = tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]
Run = Callable[[Mapping[str, npt.NDArray[np.generic]]], Arrays]


def relative_tolerance(module: nn.Module) -> float:
    """Largest difference to accept, as a share of a float32 output's largest absolute value."""
    stored = [x for part in module.modules() if isinstance(part, Stored) for x in part.buffers()]
    weights = [p for p in (*module.parameters(), *stored) if p.ndim >= 2 and p.numel()]
    layers = max(1, len(weights))
    terms = max((p[0].numel() for p in weights), default=1)
    return SAFETY * layers * math.sqrt(terms) * 2.0**-24


def check_dtypes(module: nn.Module) -> None:
    """Refuses a module in number types that onnxq does not quantize."""
    for name, x in (*module.named_parameters(), *module.named_buffers()):
        if x.dtype in (torch.float64, torch.bfloat16):
            dtype = str(x.dtype).removeprefix("torch.")
            raise ModelError(
                f"{type(module).__name__}: '{name}' is {dtype}; wanted float32. Export "
                "module.float(), with example inputs in float32."
            )


def check_projections(module: nn.Module) -> None:
    """Refuses LSTM with a projection of its state, which the exporter writes as one without."""
    for name, part in module.named_modules():
        if isinstance(part, nn.LSTM) and part.proj_size:
            raise UnsupportedError(
                f"{type(module).__name__}: '{name}' is an LSTM with proj_size={part.proj_size}; "
                "ONNX's LSTM has no projection of the state. Leave proj_size out, with a Linear "
                "behind the LSTM, or write its steps as a loop of your own."
            )


def check_against(
    module: nn.Module, run: Run, names: Sequence[str], inputs: BoundInputs, tolerance: float
) -> None:
    """Holds one run of the exported model against the module."""
    where, pairs = run_both(module, run, inputs)
    for name, (actual, expected) in zip(names, pairs, strict=True):
        _compare(f"{where}, output '{name}'", actual, expected, tolerance)


def run_both(module: nn.Module, run: Run, inputs: BoundInputs) -> tuple[str, list[Pair]]:
    """Where results are compared, in words, and outputs as (the model's, the module's)."""
    try:
        outputs = compute(module, inputs)
    except FORWARD_RAISES as error:
        raise ModelError(
            f"{type(module).__name__} takes its example inputs, but not with another number of "
            f"rows, {described(inputs, error)}. Say with dynamic_axes which axes are dynamic, "
            "and which of them are the batch; {} fixes every shape."
        ) from error
    wanted = [x.detach().cpu().numpy() for x in flatten(outputs)]
    got = run({name: x.detach().cpu().numpy() for name, x in inputs.tensors.items()})
    shapes = {name: tuple(x.shape) for name, x in inputs.tensors.items()}
    where = f"exported {type(module).__name__}, inputs {shapes}"
    if len(got) != len(wanted):
        raise VerificationError(
            f"{where}: {len(got)} outputs; the module returns {len(wanted)} tensors."
        )
    return where, list(zip(got, wanted, strict=True))


def _compare(
    where: str, actual: npt.NDArray[np.generic], expected: npt.NDArray[np.generic], tolerance: float
) -> None:
    advice = (
        "Try another opset, report the module to the PyTorch exporter, or, if its float results "
        "are ill-conditioned, pass a larger tolerance."
    )
    if actual.shape != expected.shape:
        raise VerificationError(
            f"{where}: shape {actual.shape}; the module gives {expected.shape}. {advice}"
        )
    if not np.issubdtype(expected.dtype, np.floating):
        different = int((actual != expected).sum())
        if different:
            raise VerificationError(
                f"{where}: {different} of {expected.size} integers differ. {advice}"
            )
        return
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        raise VerificationError(
            f"{where}: NaN or Inf where the module gives other values. {advice}"
        )
    if not finite.any():
        return
    reference = expected[finite].astype(np.float64)
    error = float(np.abs(actual[finite].astype(np.float64) - reference).max())
    half_ulp = float(np.finfo(str(expected.dtype)).eps) / 2
    bound = tolerance * (half_ulp / 2.0**-24) * float(np.abs(reference).max())
    if not error <= bound:  # also when the exported model gives NaN
        raise VerificationError(
            f"{where}: differs from the module by {error:.3g}; rounding explains {bound:.3g}. "
            f"{advice}"
        )

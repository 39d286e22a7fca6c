"""Post-training quantization and quantization-aware training in one call each."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from onnxq.pytorch.eager.convert import convert
from onnxq.pytorch.eager.prepare import prepare, prepare_qat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import nn


def default_eval_fn(model: nn.Module, calib_data: Iterable[tuple[Any, Any]]) -> None:
    """Runs the model on the inputs of (input, target) pairs."""
    with torch.no_grad():
        for x, _ in calib_data:
            model(x)


def quantize(
    model: nn.Module,
    run_fn: Callable[..., object],
    run_args: Sequence[Any],
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """The quantized model: prepare, run_fn(prepared, *run_args), convert.

    Args:
        model: float, with qconfigs and stubs; it is put into eval mode.
        run_fn: runs it on data, such as default_eval_fn.
        run_args: what else run_fn is called with.
        mapping: as for convert.
        inplace: changes the model itself.
    Raises:
        OnnxqError: as prepare and convert.
    """
    prepared = model if inplace else copy.deepcopy(model)
    prepared = prepare(prepared.eval(), inplace=True)
    run_fn(prepared, *run_args)
    return convert(prepared, mapping, inplace=True)


def quantize_qat(
    model: nn.Module,
    run_fn: Callable[..., object],
    run_args: Sequence[Any],
    inplace: bool = False,
) -> nn.Module:
    """The trained and quantized model: prepare_qat, run_fn(prepared, *run_args), convert.

    Args:
        model: float, with qconfigs and stubs; it is put into train mode.
        run_fn: trains it.
        run_args: what else run_fn is called with.
        inplace: changes the model itself.
    Raises:
        OnnxqError: as prepare_qat and convert.
    """
    prepared = model if inplace else copy.deepcopy(model)
    prepared = prepare_qat(prepared.train(), inplace=True)
    run_fn(prepared, *run_args)
    return convert(prepared.eval(), inplace=True)

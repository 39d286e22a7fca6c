"""Differences of QAT models between torch.ao and what is imported, in LSB; with their cause.

    python -m benchmarks importers

Each row is a small residual network (tests/torch_ao_models.py), trained a little by torch.ao with
one qconfig. Its logits in torch's evaluation are compared with ONNX Runtime's, and with the
imported module as torch runs it, with and without what deployment does and training did not:

    bias       int32 at x_scale * w_scale; float32 in training
    average    the pooled result on a grid; float32 in training, but in FX

The last row has channels of one sign, which the default qconfig trains on asymmetric grids.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import click
import numpy as np
import torch
from torch.ao import quantization as tq

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from onnxq.ort import runtime
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.importers import import_quantized, packed, region
from onnxq.pytorch.importers.converted import traceable
from onnxq.pytorch.importers.notes import collected
from onnxq.pytorch.importers.trained import convert_as_trained
from onnxq.pytorch.modules.places import copy_structure
from onnxq.qdq.tidy import output_scales
from tests.torch_ao_models import fx, one_signed, outputs, qat

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import nn

PLAIN = tq.FakeQuantize.with_args(
    observer=tq.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
)
PER_TENSOR = tq.QConfig(activation=PLAIN, weight=tq.default_weight_fake_quant)
PER_CHANNEL = tq.QConfig(activation=PLAIN, weight=tq.default_per_channel_weight_fake_quant)
MAKERS: dict[str, Any] = {
    "FakeQuantize, per tensor": lambda: qat(qconfig=PER_TENSOR),
    "FakeQuantize, per channel": lambda: qat(qconfig=PER_CHANNEL),
    "FakeQuantize, per channel, batch norm unfused": lambda: qat(fuse=False, qconfig=PER_CHANNEL),
    "default fbgemm (fused observer)": lambda: qat("fbgemm"),
    "default qnnpack (fused observer)": lambda: qat("qnnpack"),
    "default fbgemm, FX": lambda: fx("fbgemm", trained=True),
    "default fbgemm, two channels of one sign": one_signed,
}
CAUSES = ((), ("bias",), ("average",), ("bias", "average"))
COLUMNS = ("ORT", "imported", "bias in float", "average in float", "both", "ORT - imported")
STEPS = "{0[0]:.1f}, {0[1]:.1%}"
NETWORKS = Table("networks", {"qconfig": "", **dict.fromkeys(COLUMNS, STEPS)})
IMAGES = torch.randn(256, 3, 16, 16, generator=torch.Generator().manual_seed(3))


@contextlib.contextmanager
def as_trained(*causes: str) -> Iterator[None]:
    """A context in which the imported module does some things as training did."""
    with contextlib.ExitStack() as stack:
        if "bias" in causes:
            change = mock.patch.object(packed.PackedWeight, "real_bias", lambda self, *_: self.bias)
            stack.enter_context(change)
        if "average" in causes:
            put = region.Region.put

            def pooled_in_float(self: Any, x: torch.Tensor, qparams: Any) -> torch.Tensor:
                last = x.ndim == 4 and x.shape[2:] == (1, 1)
                flat = x.ndim == 2 and x.shape[1] == 8
                return self.mark(x, qparams) if last or flat else put(self, x, qparams)

            stack.enter_context(mock.patch.object(region.Region, "put", pooled_in_float))
        yield


def imported(model: nn.Module, *causes: str) -> npt.NDArray[np.float32]:
    """Logits of the imported module in torch."""
    with collected(), as_trained(*causes):
        made = convert_as_trained(model)
        bound = bind(made, IMAGES)
        copied = copy_structure(made, dict(packed.packed_weights(made, ())))
        return outputs(traceable(copied, bound), IMAGES)[0].numpy()


def difference(
    one: npt.NDArray[np.float32], other: npt.NDArray[np.float32], scale: float
) -> list[float]:
    """Largest step, and the share of elements a half step apart or more."""
    steps = np.abs(one - other) / scale
    return [float(steps.max()), float((steps >= 0.5).mean())]


@benchmark(NETWORKS, needs=("torch",))
def measure() -> Iterator[Row]:
    """Differences of each network."""
    for name, make in MAKERS.items():
        torch.manual_seed(0)
        model = make()
        exported = import_quantized(model, IMAGES[:4])
        trained = outputs(model, IMAGES)[0].numpy()
        found = [imported(model, *causes) for causes in CAUSES]
        scale = output_scales(exported)[0][1]
        if scale is None:
            raise click.ClickException(f"{name}: the output is not on a grid")
        with runtime.open_session(exported) as session:
            got = np.asarray(session.run({"x": IMAGES.numpy()})[0], np.float32)
        cells = [difference(trained, x, scale) for x in (got, *found)]
        yield NETWORKS.row(name, *cells, difference(got, found[0], scale))

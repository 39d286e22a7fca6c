"""export on machines whose kernels add pairs of products in int16, each by its arithmetic."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxq import targets
from onnxq.errors import OnnxqError, UnsupportedError, VerificationError
from onnxq.pytorch import export
from onnxq.pytorch.exporting import exact_sums
from onnxq.pytorch.exporting.agreement import reference_kernels
from onnxq.pytorch.nn import quantized as nnq
from onnxq.qtensor import quantize_per_tensor

if TYPE_CHECKING:
    from onnxq.pytorch.exporting.agreement import Engine
    from onnxq.targets import Target

TERMS = 16


class Layer(nn.Module):
    """A linear layer of one weight, in integers of 1; an output's step is 400 of its products."""

    def __init__(self, weight: int) -> None:
        super().__init__()
        self.quant = nnq.Quantize(1.0, 128, "quint8")
        self.linear = nnq.Linear(TERMS, 3)
        integers = np.full((3, TERMS), weight, np.float32)
        self.linear.set_weight_bias(
            quantize_per_tensor(integers, 1.0, 0, "qint8"), torch.zeros(3), 1.0
        )
        self.linear.scale, self.linear.zero_point = 4000.0, 0

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        y: Tensor = self.linear(self.quant(x))
        return y


def on(machine: str, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Stands for that machine: its kernels are the reference's, in its arithmetic."""
    target = targets.find(machine)
    engine = functools.partial(reference_kernels, saturation_mode=target.saturation_mode)
    monkeypatch.setattr(exact_sums, "target_here", lambda: target)
    monkeypatch.setattr(exact_sums, "onnx_runtime", engine)
    return target


SATURATED, WRAPPED = (127, 127.0), (-128, -128.0)  # weight, and each element of the input


@pytest.mark.parametrize(
    ("machine", "numbers", "said"),
    [
        # each pair is 2 * 255 * 127 - 32767 = 32003 less: 8 of them are 64.006 steps of 4000
        ("x86-avx2", SATURATED, r"\(x86-avx2\).*saturate.*'linear'.*up to 64 LSB.*reduce_range"),
        # each pair is 2^16 less: 131.07 steps, of 65.5 that there are above zero
        ("arm64", WRAPPED, r"\(arm64\).*wrap.*'linear'.*up to 66 LSB.*in \[-127, 127\]"),
    ],
)
def test_a_model_that_is_right_in_exact_sums_is_exported_with_a_warning(
    machine: str, numbers: tuple[int, float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(machine, monkeypatch)
    weight, x = numbers
    with pytest.warns(UserWarning, match=said):
        model = export(Layer(weight).eval(), torch.full((4, TERMS), x))
    integers = model.graph.initializers["linear.weight_integers"].const_value
    assert integers is not None
    assert (integers.numpy() == weight).all()


def test_weights_within_the_range_of_the_machine_are_exported_in_silence(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    limit = on("x86-avx2", monkeypatch).weight_qmax_saturating
    export(Layer(limit).eval(), torch.full((4, TERMS), 127.0))
    assert not [w for w in recwarn if "pairs of products" in str(w.message)]


def test_saturated_results_of_a_machine_that_adds_exactly_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on("x86-avx2", monkeypatch)
    monkeypatch.setattr(exact_sums, "target_here", lambda: targets.find("x86-vnni"))
    with pytest.raises(VerificationError, match="differs from the module by up to 64 LSB"):
        export(Layer(127).eval(), torch.full((4, TERMS), 127.0))


@pytest.mark.parametrize("other", [VerificationError, UnsupportedError])
def test_the_error_stays_where_exact_sums_are_wrong_too_or_cannot_be_had(
    other: type[OnnxqError], monkeypatch: pytest.MonkeyPatch
) -> None:
    on("x86-avx2", monkeypatch)

    def check(engine: Engine) -> None:
        if engine is reference_kernels:
            raise other("in exact sums")
        raise VerificationError("here")

    with pytest.raises(VerificationError, match="here") as raised:
        exact_sums.check_here_or_exactly(check, Layer(127), [])  # type: ignore[arg-type]  # unread
    assert isinstance(raised.value.__cause__, other)

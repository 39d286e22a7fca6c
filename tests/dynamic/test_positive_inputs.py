"""Weights behind activations: rounding errors that cancel, since their inputs have one sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.dynamic.positive_inputs import positive_values
from onnxq.operator.nodes import tensor_of
from tests.dynamic_models import parsed
from tests.examples import weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles

CHANNELS, SIZE = 16, 12
IMAGE = f"float[n,{CHANNELS},{SIZE},{SIZE}]"
NUMBERS = {
    "half": np.array(0.5, np.float32),
    "below": np.array(-5.0, np.float32),
    "zero": np.array(0.0, np.float32),
    "mixed": np.array([-1.0, 2.0] * (CHANNELS // 2), np.float32).reshape(CHANNELS, 1, 1),
}
"""Constants of the bodies."""
POSITIVE = [
    "y = Relu(x)",
    "y = Clip(x, zero)",
    "s = Sigmoid(x) y = Mul(x, s)",
    "r = Relu(x) s = HardSigmoid(x) y = Mul(s, r)",
    "r = Relu(x) m = Mul(r, half) y = Add(m, half)",
    "r = Relu(x) s = Sigmoid(x) y = Concat <axis = 1> (r, s)",
    "r = Relu(x) y = MaxPool <kernel_shape = [2, 2]> (r)",
    "y = HardSwish(x)",
    "y = Exp(x)",
    "y = Softplus(x)",
    "r = Relu(x) y = GlobalAveragePool(r)",
    "r = Relu(x) y = Transpose <perm = [0, 1, 3, 2]> (r)",
]
OTHERS = [
    "y = Tanh(x)",
    "y = Clip(x)",
    "y = GlobalAveragePool(x)",
    "y = Sin(x)",
    "r = Relu(x) y = Add(r, x)",
    "r = Relu(x) y = Mul(r, mixed)",
    "r = Relu(x) y = Add(r, below)",
    "s = Sigmoid(x) t = Tanh(x) y = Mul(t, s)",
]


@pytest.mark.parametrize(
    ("body", "wanted"), [*((b, True) for b in POSITIVE), *((b, False) for b in OTHERS)]
)
def test_the_graph_tells_which_tensors_have_means_of_one_sign(body: str, wanted: bool) -> None:
    read = {name: array for name, array in NUMBERS.items() if name in body}
    model = ir.from_proto(parsed(f"g ({IMAGE} x) => (float[n,c,h,w] y) {{ {body} }}", read))
    (y,) = model.graph.outputs
    assert (y in positive_values(model)) == wanted


def stored_errors(ahead: str, weight: Singles, group: int = 1) -> Reals:
    """Rounding errors of the stored integers behind that activation, a row per channel."""
    text = (
        f"g ({IMAGE} x) => (float[n,c,h,w] y) "
        f"{{ a = {ahead}(x) y = Conv <group = {group}> (a, w) }}"
    )
    made = onnxq.quantize_dynamic(parsed(text, {"w": weight}), objective="size")
    constants = [tensor_of(v).numpy() for v in made.graph.initializers.values()]
    (integers,) = (each for each in constants if each.dtype == np.int8)
    scale = np.abs(weight).max((1, 2, 3), keepdims=True) / 127
    (found,) = (each for each in constants if each.size == len(weight) and each is not integers)
    np.testing.assert_allclose(found.ravel(), scale.ravel(), rtol=0.2)
    exact = weight.astype(np.float64) / found.reshape(-1, 1, 1, 1)
    errors: Reals = (integers - exact).reshape(len(weight), -1)
    return errors


@pytest.mark.parametrize(
    ("ahead", "group", "cancels"),
    [("Relu", 1, True), ("Tanh", 1, False), ("Tanh", CHANNELS, True)],
)
def test_errors_cancel_behind_activations_and_in_depthwise_kernels(
    ahead: str, group: int, cancels: bool
) -> None:
    weight = weights(0, CHANNELS, CHANNELS // group, 5, 5)
    errors = stored_errors(ahead, weight, group)
    assert (np.abs(errors.sum(1)).max() <= 0.5) == cancels
    assert (np.abs(errors).max() <= 0.5 + 1e-3) == (not cancels)


def test_outputs_behind_relus_are_nearer_to_float() -> None:
    # a half of a normal distribution has mean^2 = 0.47 variances: 10 lg(1.47) = 1.7 dB to gain
    rng = np.random.default_rng(0)
    x = np.maximum(rng.normal(0, 1, (200, CHANNELS * 25)), 0)
    weight = weights(0, CHANNELS, CHANNELS, 5, 5)
    noise = [np.square(x @ stored_errors(a, weight).T).sum() for a in ("Tanh", "Relu")]
    assert 10 * np.log10(noise[0] / noise[1]) > 1

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.operator import NodeCall
from onnxq.operators._activations import Activation, activations

if TYPE_CHECKING:
    from onnxq.operator import AttributeValue

X = np.array([-2, -0.5, 0, 0.5, 2], np.float32)


def test_alphas_and_betas_go_to_the_functions_that_take_one() -> None:
    attributes: dict[str, AttributeValue] = {
        "activations": ["Tanh", "HardSigmoid", "LeakyRelu"],
        "activation_alpha": [0.3, 0.1],
        "activation_beta": [0.4],
    }
    assert activations(NodeCall("LSTM", (), attributes=attributes), ()) == [
        Activation("tanh"),
        Activation("hardsigmoid", 0.3, 0.4),
        Activation("leakyrelu", 0.1),
    ]


def test_defaults_are_those_of_onnx_runtime() -> None:
    names = ("Affine", "LeakyRelu", "ThresholdedRelu", "HardSigmoid")
    found = activations(NodeCall("LSTM", ()), names)
    assert [(a.alpha, a.beta) for a in found] == [(0, 0), (0.01, 0), (0, 0), (0.2, 0.5)]


@pytest.mark.parametrize(
    ("activation", "wanted"),
    [
        (Activation("relu"), [0, 0, 0, 0.5, 2]),
        (Activation("affine", 2, 1), [-3, 0, 1, 2, 5]),
        (Activation("leakyrelu", 0.5), [-1, -0.25, 0, 0.5, 2]),
        (Activation("thresholdedrelu", 0.5), [0, 0, 0, 0, 2]),
        (Activation("hardsigmoid", 0.5, 0.5), [0, 0.25, 0.5, 0.75, 1]),
        (Activation("sigmoid"), 1 / (1 + np.exp(-X))),
        (Activation("tanh"), np.tanh(X)),
        (Activation("softsign"), X / (1 + np.abs(X))),
    ],
    ids=lambda value: value.name if isinstance(value, Activation) else "",
)
def test_functions_are_what_their_names_say(activation: Activation, wanted: list[float]) -> None:
    # 2^-22: the polynomials are within two ulp of 1
    assert np.abs(activation(X) - np.asarray(wanted)).max() <= 2**-22


def test_a_function_of_the_c_library_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="LSTM: activation softplus is not reproduced"):
        activations(
            NodeCall("LSTM", (), attributes={"activations": ["Sigmoid", "Softplus", "Tanh"]}), ()
        )

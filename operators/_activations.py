"""Activation functions of recurrent operators, as ONNX Runtime computes them in LSTM, to the bit.

Elu, Softplus and ScaledTanh are missing: they call the C library, whose last bit differs between
machines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.operator import NodeCall, Singles
from onnxq.operators._logistic import logistic, tanh

Function = Callable[[Singles, np.float32, np.float32], Singles]

ZERO, ONE = np.float32(0), np.float32(1)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "sigmoid": lambda x, *_: logistic(x),
        "tanh": lambda x, *_: tanh(x),
        "relu": lambda x, *_: np.where(x > 0, x, ZERO),
        "affine": lambda x, alpha, beta: np.asarray(alpha * x + beta),
        "leakyrelu": lambda x, alpha, _: np.where(x >= 0, x, alpha * x),
        "thresholdedrelu": lambda x, alpha, _: np.where(x > alpha, x, ZERO),
        "hardsigmoid": lambda x, alpha, beta: np.minimum(ONE, np.maximum(ZERO, alpha * x + beta)),
        "softsign": lambda x, *_: np.asarray(x / (ONE + np.abs(x))),
    }
)
"""By name in lower case: (x, alpha, beta) -> y."""

TAKES: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "affine": (0.0, 0.0),  # ONNX Runtime's defaults; ONNX has 1 for Affine's alpha
        "leakyrelu": (0.01, None),
        "thresholdedrelu": (0.0, None),
        "hardsigmoid": (0.2, 0.5),
        "elu": (1.0, None),
        "scaledtanh": (0.0, 0.0),
    }
)
"""Defaults of alpha and beta of those functions that take one from the node's lists."""


@dataclass(frozen=True, slots=True)
class Activation:
    """One function of a cell; name in lower case."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Singles) -> Singles:
        """float32, shape of x."""
        with np.errstate(over="ignore", under="ignore"):
            return FUNCTIONS[self.name](x, np.float32(self.alpha), np.float32(self.beta))


def activations(call: NodeCall, defaults: Sequence[str]) -> list[Activation]:
    """The functions that a node names, in order; alphas and betas go to those that take one."""
    given = cast("Sequence[str | bytes]", call.attributes.get("activations") or defaults)
    names = [(n.decode() if isinstance(n, bytes) else str(n)).lower() for n in given]
    alphas = iter(cast("Sequence[float]", call.attributes.get("activation_alpha") or ()))
    betas = iter(cast("Sequence[float]", call.attributes.get("activation_beta") or ()))
    found = []
    for name in names:
        alpha, beta = TAKES.get(name, (None, None))
        found.append(Activation(name, _next(alphas, alpha), _next(betas, beta)))
    odd = [name for name in names if name not in FUNCTIONS]
    if odd:
        raise UnsupportedError(
            f"{call.op_type}: activation {odd[0]} is not reproduced to the bit; kernels exist for "
            f"{', '.join(FUNCTIONS)}."
        )
    return found


def _next(values: Iterator[float], default: float | None) -> float:
    """The next of the node's values, where the function takes one."""
    return 0.0 if default is None else float(next(values, default))

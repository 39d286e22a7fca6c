"""Gates of recurrent operators: their functions as the node names them, written as ONNX nodes."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.operator import NodeCall
from onnxq.operator.nodes import call_of
from onnxq.operators._activations import TAKES, Activation
from onnxq.operators._bodies import BodyWriter

OPERATORS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "Relu",
    "softsign": "Softsign",
    "softplus": "Softplus",
    "leakyrelu": "LeakyRelu",
    "thresholdedrelu": "ThresholdedRelu",
    "elu": "Elu",
    "hardsigmoid": "HardSigmoid",
}
"""Functions that are an ONNX operator of their own."""
WRITTEN_OUT = ("affine", "scaledtanh")
"""The others."""
NO_CLIP = -1.0


def as_named(call: NodeCall, defaults: Sequence[str]) -> list[list[Activation]]:
    """The functions per direction; alphas and betas go, in order, to those that take one."""
    names = _names(call, defaults)
    alphas = iter(_reals(call, "activation_alpha"))
    betas = iter(_reals(call, "activation_beta"))
    found = []
    for name in names:
        alpha, beta = TAKES.get(name, (None, None))
        found.append(
            Activation(
                name,
                0.0 if alpha is None else float(next(alphas, alpha)),
                0.0 if beta is None else float(next(betas, beta)),
            )
        )
    size = len(defaults)
    return [found[i : i + size] for i in range(0, len(found), size)]


def as_indexed(call: NodeCall, default: str) -> list[list[Activation]]:
    """RNN's: alpha and beta d belong to direction d, and are 0 where the node has none.

    So ONNX Runtime reads them; ONNX has other defaults (0.01 for LeakyRelu).
    """
    names = _names(call, [default])
    alphas = _reals(call, "activation_alpha") or [0.0] * len(names)
    betas = _reals(call, "activation_beta") or [0.0] * len(names)
    if min(len(alphas), len(betas)) < len(names):
        raise UnsupportedError(
            f"{call.op_type}: {len(alphas)} alphas and {len(betas)} betas for {len(names)} "
            "directions, which ONNX Runtime reads one for one; give as many."
        )
    return [
        [Activation(name, float(alpha), float(beta))]
        for name, alpha, beta in zip(names, alphas, betas, strict=False)
    ]


def directions(call: NodeCall) -> int:
    """2 for a bidirectional node, else 1."""
    return 2 if call.text("direction", "forward") == "bidirectional" else 1


def _reals(call: NodeCall, name: str) -> list[float]:
    return [float(value) for value in cast("Sequence[float]", call.attributes.get(name) or ())]


def _names(call: NodeCall, defaults: Sequence[str]) -> list[str]:
    both = directions(call)
    count = len(defaults) * both
    listed = cast("Sequence[str | bytes]", call.attributes.get("activations") or [*defaults] * both)
    given = [name.decode() if isinstance(name, bytes) else str(name) for name in listed]
    names = [name.lower() for name in given[:count]]
    odd = [name for name in names if name not in OPERATORS and name not in WRITTEN_OUT]
    if odd or len(names) < count:
        raise UnsupportedError(
            f"{call.op_type}: activations {', '.join(given)}; wanted {count} of "
            f"{', '.join([*OPERATORS, *WRITTEN_OUT])}."
        )
    return names


def clip_limit(call: NodeCall) -> float | None:
    """Bound of what goes into the activations; None: there is none."""
    limit = call.real("clip", NO_CLIP)
    return None if limit < 0 else limit


def gate(body: BodyWriter, label: str, function: Activation, x: ir.Value) -> ir.Value:
    """function(x), x clipped first where the node says so."""
    limit = clip_limit(call_of(body.node))
    if limit is not None:
        bounds = [
            body.reals_of("clip_low", np.array(-limit, np.float32)),
            body.reals_of("clip_high", np.array(limit, np.float32)),
        ]
        x = body.op(f"{label}_clipped", "Clip", [x, *bounds])
    if function.name == "affine":
        return _affine(body, label, x, function)
    if function.name == "scaledtanh":
        beta = body.reals_of(f"beta_{function.beta}", np.array(function.beta, np.float32))
        alpha = body.reals_of(f"alpha_{function.alpha}", np.array(function.alpha, np.float32))
        inner = body.op(f"{label}_tanh", "Tanh", [body.op(f"{label}_inner", "Mul", [x, beta])])
        return body.op(label, "Mul", [inner, alpha])
    takes = zip(("alpha", "beta"), TAKES.get(function.name, (None, None)), strict=True)
    attributes = {name: getattr(function, name) for name, default in takes if default is not None}
    return body.op(label, OPERATORS[function.name], [x], attributes)


def _affine(body: BodyWriter, label: str, x: ir.Value, function: Activation) -> ir.Value:
    alpha = body.reals_of(f"alpha_{function.alpha}", np.array(function.alpha, np.float32))
    beta = body.reals_of(f"beta_{function.beta}", np.array(function.beta, np.float32))
    return body.op(label, "Add", [body.op(f"{label}_scaled", "Mul", [x, alpha]), beta])

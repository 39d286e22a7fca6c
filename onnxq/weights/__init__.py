"""Improvements of weights: values in, values out, each judged on samples held back.

    quantize(model, samples, qconfig=default_qconfig_mapping().set_improve(["bias", "round"]))
    better = Bias().improve(prepared, plan, samples)
    rewrite(better.prepared, better.plan)

`docs/guides/improve.md` has the derivations, and what each gives.
"""

from onnxq.weights.algorithm import (
    EqualModel,
    Improved,
    ModelAlgorithm,
    PTQAlgorithm,
    WeightAlgorithm,
    find,
    register,
)
from onnxq.weights.auto import Auto
from onnxq.weights.bias import Bias
from onnxq.weights.carry_out import improve_model, improve_weights, wanted
from onnxq.weights.round import Round
from onnxq.weights.smooth import Smooth

__all__ = [
    "Auto",
    "Bias",
    "EqualModel",
    "Improved",
    "ModelAlgorithm",
    "PTQAlgorithm",
    "Round",
    "Smooth",
    "WeightAlgorithm",
    "find",
    "improve_model",
    "improve_weights",
    "register",
    "wanted",
]

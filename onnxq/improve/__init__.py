"""Improvements of weights: values in, values out, each judged on samples held back.

    quantize(model, samples, qconfig=default_qconfig_mapping().set_improve(["bias", "round"]))
    better = Bias().improve(prepared, plan, samples)
    rewrite(better.prepared, better.plan)

`docs/guides/improve.md` has the derivations, and what each gives.
"""

from onnxq.improve.bias import Bias
from onnxq.improve.carry_out import improve_model, improve_weights, wanted
from onnxq.improve.equalize import Equalize
from onnxq.improve.improvement import (
    EqualModel,
    Improved,
    Improvement,
    ModelImprovement,
    WeightImprovement,
    find,
    register,
)
from onnxq.improve.round import Round
from onnxq.improve.smooth import Smooth

__all__ = [
    "Bias",
    "EqualModel",
    "Equalize",
    "Improved",
    "Improvement",
    "ModelImprovement",
    "Round",
    "Smooth",
    "WeightImprovement",
    "find",
    "improve_model",
    "improve_weights",
    "register",
    "wanted",
]

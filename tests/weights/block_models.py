"""Weights and small models for the tests of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.ort.types_by_run import types_by_run
from onnxq.weights.hessian import Hessian, InputHessians, Shrinkage
from onnxq.weights.solve import prepared

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnxq.core.arrays import Singles
    from onnxq.qparams.group_spec import GroupSpec, Method
    from onnxq.qparams.groups import GroupIntegers


def weight(outputs: int, inputs: int, seed: int = 0) -> Singles:
    """Normal numbers with a few large ones."""
    generator = np.random.default_rng(seed)
    w = generator.standard_normal((outputs, inputs)).astype(np.float32)
    return w * (1 + 4 * (generator.random(w.shape) < 0.01).astype(np.float32))


def hessian_of(seen: Singles, wanted: Singles | None = None) -> Hessian:
    """The Hessian of rows (rows, inputs), all at once; `wanted`: of the float model."""
    own = np.asarray(seen.T @ seen, np.float64) / len(seen)
    cross = None if wanted is None else np.asarray(wanted.T @ seen, np.float64) / len(seen)
    means = seen.mean(0), None if wanted is None else wanted.mean(0)
    return Hessian(own, cross, *means, Shrinkage())


def solved(
    w: Singles, spec: GroupSpec, method: Method, hessian: Hessian | None = None
) -> GroupIntegers:
    """Integers of a whole weight (outputs, inputs), from the Hessian of its inputs."""
    inputs = None if hessian is None else InputHessians.whole(hessian)
    return prepared(method, inputs)(w, spec)


def canonical(proto: onnx.ModelProto) -> ir.Model:
    """The model that plans are made of."""
    return canonicalize(load(proto), types_by_run).model

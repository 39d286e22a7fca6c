"""Float operators: of com.microsoft, from ONNX Runtime's optimized graphs, or broken in onnx."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from onnxq.errors import UnsupportedError
from onnxq.operator import Array, Ints, Singles
from onnxq.operator.site import MICROSOFT

GELU_SLOPE = 1.702  # QuickGelu's default alpha
EMBED_EPSILON = 1e-12  # EmbedLayerNormalization's default
BATCH_EPSILON = 1e-5  # BatchNormalization's default


class QuickGelu(OpRun):
    """Y = X * sigmoid(alpha * X)."""

    op_domain = MICROSOFT

    def _run(self, x: Singles, alpha: float | None = None, **_: Any) -> tuple[Singles, ...]:
        with np.errstate(over="ignore"):
            slope = np.float32(GELU_SLOPE if alpha is None else alpha)
            return (np.asarray(x / (1 + np.exp(-slope * x)), x.dtype),)


class FusedMatMul(OpRun):
    """Y = alpha * A B; transA and transB exchange the last two axes."""

    op_domain = MICROSOFT

    def _run(
        self,
        a: Singles,
        b: Singles,
        alpha: float | None = None,
        transA: int | None = None,  # noqa: N803  # names of the attributes
        transB: int | None = None,  # noqa: N803  # likewise
        **_: Any,
    ) -> tuple[Singles, ...]:
        a = np.swapaxes(a, -1, -2) if transA else a
        b = np.swapaxes(b, -1, -2) if transB else b
        product = np.matmul(a, b)
        return (np.asarray(product * np.float32(1 if alpha is None else alpha), a.dtype),)


class Gelu(OpRun):
    """Y = X / 2 * (1 + erf(X / sqrt(2)))."""

    op_domain = MICROSOFT

    def _run(self, x: Singles, **_: Any) -> tuple[Singles, ...]:
        erf = load_op("", "Erf").eval(np.asarray(x * np.float32(np.sqrt(0.5))))
        return (np.asarray(np.float32(0.5) * x * (1 + erf), x.dtype),)


class BiasGelu(Gelu):
    """Gelu of X + B."""

    def _run(self, x: Singles, b: Singles | None = None, **_: Any) -> tuple[Singles, ...]:
        return super()._run(x if b is None else np.asarray(x + b))


class FusedConv(OpRun):
    """Y = activation(Conv(X, W) + B + Z)."""

    op_domain = MICROSOFT

    def _run(
        self,
        x: Singles,
        w: Singles,
        b: Singles | None = None,
        z: Singles | None = None,
        activation: str | None = None,
        activation_params: Sequence[float] | None = None,
        **attributes: Any,
    ) -> tuple[Singles, ...]:
        inputs = [x, w] if b is None else [x, w, b]
        given = {name: value for name, value in attributes.items() if value is not None}
        y = load_op("", "Conv").eval(*inputs, **given)
        y = y if z is None else y + z
        if activation:
            y = _activate(np.asarray(y), activation, activation_params or ())
        return (np.asarray(y, x.dtype),)


class EmbedLayerNormalization(OpRun):
    """Rows of word, position and segment tables added, then LayerNormalization.

    The second result counts the ones in each row of the mask; the third is the sum of the rows.
    """

    op_domain = MICROSOFT

    def _run(
        self,
        ids: Ints,
        segments: Ints | None,
        word: Singles,
        position: Singles,
        segment: Singles | None,
        gamma: Singles,
        beta: Singles,
        mask: Ints | None = None,
        places: Ints | None = None,
        epsilon: float | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        rows = np.broadcast_to(np.arange(ids.shape[1]) if places is None else places, ids.shape)
        total = word[ids] + position[rows]
        if segments is not None and segment is not None:
            total = total + segment[segments]
        centred = total - total.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        least = np.float32(EMBED_EPSILON if epsilon is None else epsilon)
        y = centred / np.sqrt(variance + least) * gamma + beta
        ones = np.zeros(ids.shape, bool) if mask is None else mask == 1
        return np.asarray(y, word.dtype), ones.sum(axis=1, dtype=np.int32), total


class ConvTranspose(OpRun):
    """onnx's own, image by image and group by group: it fails on more than one of either."""

    op_domain = ""

    def _run(
        self,
        x: Singles,
        w: Singles,
        b: Singles | None = None,
        group: int | None = None,
        **attributes: Any,
    ) -> tuple[Singles, ...]:
        count = group or 1
        given = {name: value for name, value in attributes.items() if value is not None}
        biases = [[]] * count if b is None else [[part] for part in np.split(b, count)]
        weights = np.split(w, count)
        # without images, one of zeros tells the shape
        images = x if len(x) else np.zeros((1, *x.shape[1:]), x.dtype)
        rows = [
            [
                load_op("", type(self).__name__).eval(part, weight, *bias, **given)
                for part, weight, bias in zip(
                    np.split(image[None], count, axis=1), weights, biases, strict=True
                )
            ]
            for image in images
        ]
        y = np.concatenate([np.concatenate(row, axis=1) for row in rows])
        return (np.asarray(y[: len(x)], x.dtype),)


class Resize(OpRun):
    """Resize-10, X and scales, which onnx has no whole implementation of.

    Places are x / scale. Nearest elements are rounded up along axes that shrink, else down.
    """

    op_domain = ""

    def _run(
        self, x: Singles, scales: Singles | Sequence[float], mode: str | None = None, **_: Any
    ) -> tuple[Singles, ...]:
        resize, scales = load_op("", "Resize"), np.asarray(scales, np.float32)
        kept = {"mode": mode or "nearest", "coordinate_transformation_mode": "asymmetric"}
        if kept["mode"] != "nearest":
            return (np.asarray(resize.eval(x, None, scales, **kept), x.dtype),)
        for rounding, among in (("ceil", scales < 1), ("floor", scales >= 1)):
            part = np.where(among, scales, np.float32(1))
            x = np.asarray(resize.eval(x, None, part, nearest_mode=rounding, **kept), x.dtype)
        return (x,)


class Upsample(Resize):
    """Resize-10 under its older name, scales an attribute at first."""


class BatchNormalization(OpRun):
    """BatchNormalization-9, Y = scale (X - mean) / sqrt(var + epsilon) + B.

    onnx's own takes it for a step of training, and mixes the mean of X in.
    """

    op_domain = ""

    def _run(
        self,
        x: Singles,
        scale: Singles,
        bias: Singles,
        mean: Singles,
        variance: Singles,
        epsilon: float | None = None,
        **_: Any,
    ) -> tuple[Singles, ...]:
        # of opset 7 and 8, spatial = 0: a row of its own for each place
        shape = (-1, *(1 for _ in x.shape[2:])) if scale.ndim == 1 else scale.shape
        least = np.float32(BATCH_EPSILON if epsilon is None else epsilon)
        slope = (scale / np.sqrt(variance + least)).reshape(shape)
        y = (x - mean.reshape(shape)) * slope + bias.reshape(shape)
        return (np.asarray(y, x.dtype),)


class Softmax(OpRun):
    """Softmax-11, and its kin: one sum over `axis` and all axes behind it."""

    op_domain = ""

    def _run(self, x: Singles, **_: Any) -> tuple[Singles, ...]:
        # onnx hands over the default of the newest schema, -1
        given = {attribute.name: attribute.i for attribute in self.onnx_node.attribute}
        first = given.get("axis", 1) % x.ndim
        rows = x.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
        y = load_op("", type(self).__name__).eval(rows, axis=1)
        return (np.asarray(y, x.dtype).reshape(x.shape),)


class LogSoftmax(Softmax):
    """LogSoftmax-11."""


class Hardmax(Softmax):
    """Hardmax-11: a one at the largest."""


class LpNormalization(OpRun):
    """Y = X / (sum |X|^p)^(1/p) along `axis`, 0 where that is 0; onnx's own adds X^p with signs."""

    op_domain = ""

    def _run(
        self, x: Singles, axis: int | None = None, p: int | None = None, **_: Any
    ) -> tuple[Singles, ...]:
        along = -1 if axis is None else axis
        size = np.abs(x)
        total = size if p == 1 else size * size
        norm = total.sum(axis=along, keepdims=True, dtype=x.dtype)
        norm = norm if p == 1 else np.sqrt(norm)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


class GatherElements(OpRun):
    """Y = X at indices along `axis`, of any length; onnx's own takes 32 elements at most.

    Along the other axes indices may be shorter than X.
    """

    op_domain = ""

    def _run(self, x: Array, indices: Ints, axis: int | None = None, **_: Any) -> tuple[Array, ...]:
        along = (axis or 0) % x.ndim
        sizes = (x.shape[i] if i == along else size for i, size in enumerate(indices.shape))
        part = x[tuple(map(slice, sizes))]
        return (np.take_along_axis(part, indices, along),)


def _activate(y: Singles, kind: str, parameters: Sequence[float]) -> Singles:
    """The activation that ONNX Runtime fused."""
    known: dict[str, tuple[str, ...]] = {
        "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
    }  # fmt: skip
    if kind == "Clip":
        low, high = parameters
        return np.asarray(np.clip(y, low, high), y.dtype)
    if kind not in known:
        raise UnsupportedError(
            f"FusedConv with activation {kind}; known are Clip, {', '.join(known)}."
        )
    attributes = dict(zip(known[kind], (float(p) for p in parameters), strict=True))
    return np.asarray(load_op("", kind).eval(y, **attributes), y.dtype)


PLAIN_OPS: dict[str, type[OpRun]] = {
    op.__name__: op for op in (ConvTranspose, GatherElements, LpNormalization)
}
"""Float operators of the default domain that take the place of onnx's own."""

OLD_OPS: dict[str, tuple[int, type[OpRun]]] = {
    op.__name__: (opset, op)
    for opset, op in (
        (14, BatchNormalization), (13, Hardmax), (13, LogSoftmax), (11, Resize), (13, Softmax),
        (10, Upsample),
    )
}  # fmt: skip
"""Operator -> the opset below which a class takes the place of onnx's own."""

FLOAT_OPS: tuple[type[OpRun], ...] = (
    BiasGelu,
    EmbedLayerNormalization,
    FusedConv,
    FusedMatMul,
    Gelu,
    QuickGelu,
)

"""Constants as integer initializers: quantized when they are written, not before."""

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.affine import quantize
from onnxq.dtypes import QDType
from onnxq.graph.weights import derived
from onnxq.qparams import FloatArray, IntArray, PerChannel, QParams
from onnxq.targets.bias_preserving import BiasPreservingRounding

LAZY_BYTES = 1 << 20  # below it, integers are made at once; above, each time they are asked for


def integer_tensor(
    source: ir.TensorProtocol,
    qparams: QParams,
    integer_limit: int | None,
    channel_scale: tuple[float, ...] | None,
    name: str,
    bias_preserving: BiasPreservingRounding | None = None,
) -> ir.TensorProtocol:
    """The integers of a float constant, as a tensor for the ONNX file."""
    vector, stored_as = _becomes_vector(source, qparams), qparams.in_bytes.dtype
    shape = qparams.scale.shape if vector else tuple(source.shape.numpy())

    def make() -> ir.TensorProtocol:
        x = source.numpy().reshape(-1) if vector else source.numpy()
        x = np.broadcast_to(x, shape)  # a bias of one element
        if channel_scale is not None:
            x = x * np.array(channel_scale, np.float32).reshape(-1, *[1] * (x.ndim - 1))
        integers = rounded_integers(x, qparams, integer_limit, bias_preserving)
        return ir.Tensor(stored_integers(integers, stored_as), name=name)

    if source.nbytes < LAZY_BYTES:
        return make()
    return ir.LazyTensor(make, ir.DataType[stored_as.onnx], ir.Shape(shape), name=name)


def rounded_integers(
    x: FloatArray,
    qparams: QParams,
    integer_limit: int | None,
    bias_preserving: BiasPreservingRounding | None,
) -> IntArray:
    """Integers of a constant, with its channels' scales in it; arguments as of `integer_tensor`."""
    if bias_preserving is not None:
        return bias_preserving.integers(
            x, qparams, qparams.dtype.qmax if integer_limit is None else integer_limit
        )
    integers = quantize(x, qparams)
    if integer_limit is not None:
        np.clip(integers, -integer_limit, integer_limit, out=integers)
    return integers


def half_tensor(source: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """The constant in float16, each number rounded to the nearest."""
    return derived(
        lambda: source.numpy().astype(np.float16),
        ir.DataType.FLOAT16,
        tuple(source.shape.numpy()),
        name,
    )


def transposed(source: ir.TensorProtocol, perm: tuple[int, ...] | None) -> ir.TensorProtocol:
    """The constant with its axes in the order of perm (np.transpose); None: itself."""
    if perm is None:
        return source
    shape = tuple(source.shape.numpy()[axis] for axis in perm)
    return derived(lambda: np.transpose(source.numpy(), perm), source.dtype, shape, source.name)


def stored_integers(integers: npt.NDArray[np.integer], dtype: QDType) -> npt.NDArray[np.generic]:
    """Integers in the NumPy dtype that onnx_ir packs (int4 and narrower)."""
    narrow = getattr(ml_dtypes, dtype.name, None) if dtype.bits < 8 else None
    return integers if narrow is None else integers.astype(narrow)


def _becomes_vector(source: ir.TensorProtocol, qparams: QParams) -> bool:
    """Whether it is a bias of one element, or of shape (1, channels); its scales need a vector."""
    first = tuple(source.shape.numpy()[:1])
    return qparams.granularity == PerChannel(0) and first != qparams.scale.shape

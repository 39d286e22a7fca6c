"""All other nodes to be measured: element by element, pools, norms, and what moves data."""

import math
from collections.abc import Iterator

import numpy as np

from onnxq.core.arrays import Array
from onnxq.operator import Precision
from onnxq.operator.site import MICROSOFT
from onnxq.ort.runtime import Optimization
from onnxq.times import Change
from onnxq.times.microbenchmarks.convolutions import Shape, add_float, add_integer
from onnxq.times.microbenchmarks.link import (
    READS,
    SHAPE,
    Arrangement,
    Build,
    Link,
    Parts,
    TimedNode,
    both,
    calling,
    calling_on_integers,
    changing_link,
    integers,
    nothing,
    numbers,
    on_integers,
    pooled,
    pooled_integers,
    qparams,
    quantized,
    sizes_alone,
    tensors_of,
)

IMAGES = (
    *((16, 4), (64, 4), (32, 14), (96, 14), (64, 28), (128, 28), (64, 56), (32, 112), (64, 112)),
)
"""(channels, size)."""
UNARY = (
    *("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "LeakyRelu", "Gelu", "Erf", "Elu"),
    *("Sqrt", "Exp", "Log", "Abs", "Neg", "Softplus", "Reciprocal", "Mish"),
)
BINARY = ("Add", "Sub", "Mul", "Div")
ROWS = ((128, 32), (1, 1000), (384, 64), (197, 192), (128, 768), (512, 512), (1536, 128))
"""(rows, numbers in a row)."""
TOKENS = ((1, 256), (32, 384), (128, 768), (197, 192))
"""(ids, numbers of an embedding)."""


def element_links() -> Iterator[Link]:
    """Every kind, in float and where ONNX Runtime has it on integers."""
    yield Link((SHAPE[0],), SHAPE[1], nothing, {"x": numbers(4)}, end=sizes_alone, more=12)
    yield from _changes()
    for channels, size in IMAGES:
        image = (1, channels, size, size)
        yield from _unary(image)
        yield from _binary(image)
        yield from _moving(image)
        yield from _pools(image)
    for shape in ROWS:
        yield from _norms(shape)
    for ids, width in TOKENS:
        yield from _embedding(ids, width)


def _float(node: TimedNode) -> Link:
    return Link.alone(node.work, Precision.FLOAT, node.build, node.feeds())


def _integer(node: TimedNode, build: Build, *arrays: Array) -> Link:
    feeds = {f"x{i or ''}": array for i, array in enumerate(arrays)}
    return Link.alone(node.work, Precision.INT8, build, feeds)


def _changes() -> Iterator[Link]:
    """Conversions and changes of layout."""
    shapes = [(1, channels, size, size) for channels, size in IMAGES]
    for shape in (*shapes, (1, 1, 1, 64), (1, 1, 8, 256), (1, 1, 128, 768)):
        for change in (Change.QUANTIZE, Change.DEQUANTIZE, Change.QUANTIZE_AT_RUN):
            yield _change(change, shape)
    for shape in shapes:
        for change in (
            Change.CHANNELS_LAST,
            Change.CHANNELS_FIRST,
            Change.BLOCKED,
            Change.UNBLOCKED,
        ):
            yield _change(change, shape)


def _change(change: Change, shape: tuple[int, ...]) -> Link:
    work, build = change.work(math.prod(shape)), changing_link(change, shape[1])
    array = tensors_of(shape)[READS.get(change, "x")]
    return Link.alone(work, Precision.FLOAT, build, {"x": array})


def _unary(shape: tuple[int, ...]) -> Iterator[Link]:
    x = np.abs(numbers(*shape)) + np.float32(0.01)
    for op_type in UNARY:
        yield _float(TimedNode(op_type, (x,)))
    bounds = (np.zeros((), np.float32), np.full((), 6, np.float32))
    yield _float(TimedNode("Clip", (x,), bounds))
    yield _float(TimedNode("Pow", (x,), (np.full((), 2, np.float32),)))
    for op_type in ("Sigmoid", "LeakyRelu"):
        node = TimedNode(op_type, (x,))
        attributes: dict[str, object] = {} if op_type == "Sigmoid" else {"alpha": 0.1}
        yield _integer(node, calling_on_integers(f"QLinear{op_type}", attributes), integers(*shape))
    yield _integer(TimedNode("HardSwish", (x,)), _hard_swish, integers(*shape))


def _hard_swish(parts: Parts, name: str) -> str:
    """QLinearAdd with 3, whose integers end where the clip does, and QLinearMul."""
    three = parts.constant(np.array([150], np.uint8))
    clipped = on_integers(parts, "QLinearAdd", (name, three), {})
    return on_integers(parts, "QLinearMul", (name, clipped), {})


def _binary(shape: tuple[int, ...]) -> Iterator[Link]:
    _, channels, *size = shape
    x, q = numbers(*shape), integers(1, *size, channels)
    gate, integers_gate = numbers(1, channels, 1, 1), integers(1, 1, 1, channels)
    for op_type in BINARY:
        yield _float(TimedNode(op_type, (x, x)))
        yield _float(TimedNode(op_type, (x, gate)))
        yield _float(TimedNode(op_type, (x,), (np.full((), 0.5, np.float32),)))
    for op_type in ("Add", "Mul"):
        for other, other_integers in ((x, q), (gate, integers_gate)):
            yield _integer(
                TimedNode(op_type, (x, other)),
                calling_on_integers(f"QLinear{op_type}", {}, ("x1",)),
                q,
                other_integers,
            )


def _moving(shape: tuple[int, ...]) -> Iterator[Link]:
    """Data that moves; integers of images are channels last."""
    _, channels, *size = shape
    x, q = numbers(*shape), integers(1, *size, channels)
    both = TimedNode("Concat", (x, x), (), {"axis": 1})
    yield _float(both)
    yield _integer(both, _concat, q, q)
    halves = TimedNode("Split", (x,), (), {"axis": 1, "num_outputs": 2}, 2)
    yield _float(halves)
    yield _integer(halves, calling("Split", {"axis": -1, "num_outputs": 2}, results=2), q)
    for perm in ([0, 2, 1, 3], [0, 3, 1, 2], [0, 1, 3, 2]):
        turned = TimedNode("Transpose", (x,), (), {"perm": perm})
        yield _float(turned)
        yield _integer(turned, turned.build, integers(*shape))
    bounds = [np.array([each]) for each in (0, channels // 2, 1)]
    cut = TimedNode("Slice", (x,), tuple(bounds))
    yield _float(cut)
    yield _integer(cut, cut.build, integers(*shape))
    shuffled = np.arange(channels).reshape(4, -1).T.ravel()
    for node in (
        TimedNode("Gather", (x,), (shuffled,), {"axis": 1}),
        TimedNode("Gather", (x,), (np.arange(size[-1] // 2),), {"axis": 3}),
    ):
        yield _float(node)
        yield _integer(node, node.build, integers(*shape))
    flat = TimedNode("Reshape", (x,), (np.array([0, 0, -1, size[-1]]),))
    for precision, array in ((Precision.FLOAT, x), (Precision.INT8, integers(*shape))):
        yield Link(
            (flat.work,), precision, flat.build, {"x": array}, Arrangement.CHAIN, few=2, more=8
        )


def _concat(parts: Parts, name: str) -> str:
    """QLinearConcat of inputs with scales of their own, channels last."""
    scale_and_point = qparams(parts)
    other = parts.constant(np.full((), 0.03, np.float32))
    inputs = [*scale_and_point, name, other, scale_and_point[1], "x1", *scale_and_point]
    return parts.add("QLinearConcat", inputs, {"axis": 3}, MICROSOFT)


def _pools(shape: tuple[int, ...]) -> Iterator[Link]:
    _, channels, *size = shape
    x, q = numbers(*shape), integers(1, *size, channels)
    pooled = TimedNode("GlobalAveragePool", (x,))
    yield _float(pooled)
    yield _integer(pooled, calling_on_integers("QLinearGlobalAveragePool", {"channels_last": 1}), q)
    for axes in ([2, 3], [1], [-1]):
        yield _float(TimedNode("ReduceMean", (x,), (np.array(axes),)))
    if not 32 <= channels <= 64:
        return
    yield from _resized(shape)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    for op_type in ("MaxPool", "AveragePool"):
        pool = TimedNode(op_type, (x,), (), attributes)
        for precision in (Precision.FLOAT, Precision.INT8):
            yield Link(
                (pool.work,),
                precision,
                _pool(pool, precision),
                pool.feeds(),
                Arrangement.CHAIN,
                _behind_convolution(Shape(channels, channels, size[0]), precision),
                optimization=Optimization.ALL,
                few=2,
                more=4,
            )


def _resized(shape: tuple[int, ...]) -> Iterator[Link]:
    """Twice as large, behind a convolution each: equal nodes would be made one."""
    _, channels, size, _ = shape
    if size > 28:
        return
    attributes = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    node = TimedNode(
        "Resize", (numbers(*shape),), (None, np.array([1, 1, 2, 2], np.float32)), attributes
    )
    ahead = Shape(channels, channels, size)
    mean = TimedNode("GlobalAveragePool", (numbers(1, channels, 2 * size, 2 * size),)).work
    for precision in (Precision.FLOAT, Precision.INT8):
        first, then = _behind_convolution(ahead, precision), _pool(node, precision)
        yield Link(
            (node.work,),
            precision,
            both(first, then),
            node.feeds(),
            end=pooled if precision is Precision.FLOAT else pooled_integers,
            optimization=Optimization.ALL,
            minus=((ahead.node.work, precision), (mean, precision)),
        )


def _pool(node: TimedNode, precision: Precision) -> Build:
    def build(parts: Parts, name: str) -> str:
        pooled = node.build(parts, name)
        return pooled if precision is Precision.FLOAT else quantized(parts, pooled)

    return build


def _behind_convolution(shape: Shape, precision: Precision) -> Build:
    """A convolution, whose layout those behind it take."""
    if precision is Precision.FLOAT:
        return lambda parts, name: add_float(parts, name, shape)
    return lambda parts, name: add_integer(parts, quantized(parts, name), shape)


def _norms(shape: tuple[int, int]) -> Iterator[Link]:
    x, q = numbers(1, *shape), integers(1, *shape)
    softmax = TimedNode("Softmax", (x,), (), {"axis": -1})
    yield _float(softmax)
    yield _integer(softmax, calling_on_integers("QLinearSoftmax", {"axis": -1, "opset": 13}), q)
    gain = np.ones(shape[-1:], np.float32)
    yield _float(TimedNode("LayerNormalization", (x,), (gain, gain), {"axis": -1}))
    gains = np.ones(shape[:1], np.float32)
    yield _float(TimedNode("InstanceNormalization", (x,), (gains, gains)))
    for op_type in (*BINARY, "Relu", "Gelu", "Erf", "Tanh"):
        yield _float(TimedNode(op_type, (x, x) if op_type in BINARY else (x,)))
    yield _float(TimedNode("Add", (x,), (gain,)))
    yield _float(TimedNode("Mul", (x,), (gain,)))
    for op_type in ("Add", "Mul"):
        yield _integer(
            TimedNode(op_type, (x, x)), calling_on_integers(f"QLinear{op_type}", {}, ("x1",)), q, q
        )


def _embedding(ids: int, width: int) -> Iterator[Link]:
    table = numbers(5000, width)
    x = np.random.default_rng(ids).integers(0, 5000, (1, ids))
    node = TimedNode("Gather", (x,), table=table)
    for precision, rows in ((Precision.FLOAT, table), (Precision.INT8, integers(5000, width))):
        yield Link.alone(node.work, precision, _gathering(rows), {"x": x})


def _gathering(table: Array) -> Build:
    return lambda parts, name: parts.add("Gather", [parts.constant(table), name])

"""Speed of the reference kernels beside ONNX Runtime and onnx.reference, single thread.

    python -m benchmarks reference            # all stacks; about a minute
    python -m benchmarks reference mobilenet  # one of them

Every stack is a list of nodes on integers with the shapes of a well known model at batch 1, uint8
activations and int8 weights per channel, int32 biases:

    resnet     the 53 convolutions of ResNet-50 at 224x224
    mobilenet  the 52 convolutions of MobileNetV2 at 224x224, 17 of them depthwise
    matmul     the 6 MatMuls of a transformer block, 128 tokens of 768
    gemm       three fully connected layers with biases

For every node, three take the same inputs in turns: the kernel that onnxq.catalog finds, ONNX
Runtime in a session of one node, and onnx's ReferenceEvaluator (which knows QLinearConv and
QLinearMatMul; with one scale for the weights, for it refuses some scales per channel), once, for it
takes seconds. CPU time, the least of the rounds, summed over the nodes. Every element of a kernel
is compared with ONNX Runtime's.

Exit code 1: an element differs, or the resnet stack is not at least 20 times faster than
ReferenceEvaluator and within 12 times ONNX Runtime's time. NumPy's BLAS is held to one thread,
which on a busy machine is the fastest too: for runs of your own, set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from threadpoolctl import threadpool_limits

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names, with_rounds
from benchmarks.harness.table import Missed, Row, Table
from onnxq import catalog
from onnxq.operator import IntegerCall
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onnxq.core.arrays import Array

MICROSOFT = "com.microsoft"
PEER_RATIO = 20  # ReferenceEvaluator's time over ours, at least
ORT_RATIO = 12  # ours over ONNX Runtime's, at most
ZERO_POINT = 0  # of activations behind a ReLU: no value lies lower


@dataclass(frozen=True)
class Layer:
    """A node on integers: its inputs by slot, of which the first is run-time data."""

    op_type: str
    inputs: Sequence[Array]
    attributes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    domain: str = ""
    operations: int = 0


def convolution(
    random: np.random.Generator,
    channels: int,
    outputs: int,
    kernel: int,
    stride: int,
    side: int,
    group: int = 1,
) -> Layer:
    """QLinearConv, padded so that stride 1 keeps the side."""
    x = random.integers(0, 256, (1, channels, side, side)).astype(np.uint8)
    w = weights(random, outputs, channels // group, kernel, kernel)
    taps = channels // group * kernel * kernel
    bias = random.integers(-1000, 1000, outputs).astype(np.int32)
    ends = output_scale(taps)
    pads = [kernel // 2] * 4
    after = (side - 1) // stride + 1
    return Layer(
        "QLinearConv",
        (x, *scale(0.02), w, *per_channel(outputs), *ends, bias),
        {"group": group, "kernel_shape": [kernel] * 2, "pads": pads, "strides": [stride] * 2},
        operations=2 * taps * outputs * after * after,
    )


def weights(random: np.random.Generator, *shape: int) -> Array:
    """int8 integers as they are in trained models: normal, the largest at 127."""
    w = random.standard_normal(shape)
    return np.asarray(np.rint(w * 127 / np.abs(w).max()), np.int8)


def scale(value: float) -> tuple[Array, Array]:
    """Scale and zero point of activations."""
    return np.asarray(value, np.float32), np.asarray(ZERO_POINT, np.uint8)


def per_channel(channels: int) -> tuple[Array, Array]:
    """Scales and zero points of weights."""
    return np.linspace(0.005, 0.01, channels).astype(np.float32), np.zeros(channels, np.int8)


def output_scale(taps: int) -> tuple[Array, Array]:
    """Scale and zero point of a result, so that few elements saturate."""
    return scale(0.02 * 0.0075 * 127 * 30 * np.sqrt(taps) * 3 / 255)


def resnet(random: np.random.Generator) -> Iterator[Layer]:
    """ResNet-50's convolutions, in order."""
    yield convolution(random, 3, 64, 7, 2, 224)
    channels, side = 64, 56
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            yield convolution(random, channels, width, 1, 1, side)
            yield convolution(random, width, width, 3, stride, side)
            yield convolution(random, width, 4 * width, 1, 1, side // stride)
            if block == 0:
                yield convolution(random, channels, 4 * width, 1, stride, side)
            channels, side = 4 * width, side // stride


def mobilenet(random: np.random.Generator) -> Iterator[Layer]:
    """MobileNetV2's convolutions, in order."""
    yield convolution(random, 3, 32, 3, 2, 224)
    channels, side = 32, 112
    settings = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    for expansion, width, blocks, first in settings:
        for block in range(blocks):
            stride, hidden = first if block == 0 else 1, expansion * channels
            if expansion > 1:
                yield convolution(random, channels, hidden, 1, 1, side)
            yield convolution(random, hidden, hidden, 3, stride, side, group=hidden)
            side //= stride
            yield convolution(random, hidden, width, 1, 1, side)
            channels = width
    yield convolution(random, channels, 1280, 1, 1, side)


def matmul(random: np.random.Generator) -> Iterator[Layer]:
    """Query, key, value, output, and the two of the feed-forward layer."""
    for inner, columns in ((768, 768),) * 4 + ((768, 3072), (3072, 768)):
        a = random.integers(0, 256, (1, 128, inner)).astype(np.uint8)
        b, ends = weights(random, inner, columns), output_scale(inner)
        slots = (a, *scale(0.02), b, *per_channel(columns), *ends)
        yield Layer("QLinearMatMul", slots, operations=2 * 128 * inner * columns)


def gemm(random: np.random.Generator) -> Iterator[Layer]:
    """A classifier's layers, for 32 rows."""
    for inner, columns in ((2048, 1000), (4096, 4096), (512, 512)):
        a = random.integers(0, 256, (32, inner)).astype(np.uint8)
        b, ends = weights(random, inner, columns), output_scale(inner)
        bias = random.integers(-1000, 1000, columns).astype(np.int32)
        slots = (a, *scale(0.02), b, *per_channel(columns), bias, *ends)
        operations = 2 * 32 * inner * columns
        yield Layer("QGemm", slots, domain=MICROSOFT, operations=operations)


STACKS = {"resnet": resnet, "mobilenet": mobilenet, "matmul": matmul, "gemm": gemm}


def model_of(layer: Layer, inputs: Sequence[Array]) -> onnx.ModelProto:
    """A model of the one node; all but its data are constants."""
    names = [f"in{i}" for i in range(len(inputs))]
    node = helper.make_node(layer.op_type, names, ["y"], domain=layer.domain)
    for key, value in layer.attributes.items():
        node.attribute.append(helper.make_attribute(key, value))
    data = helper.make_tensor_value_info("in0", onnx.TensorProto.UINT8, inputs[0].shape)
    result = helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, None)
    constants = [numpy_helper.from_array(x, n) for n, x in zip(names[1:], inputs[1:], strict=True)]
    graph = helper.make_graph([node], "layer", [data], [result], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def per_tensor(layer: Layer) -> list[Array]:
    """The inputs with one scale for the weights."""
    inputs = list(layer.inputs)
    inputs[4], inputs[5] = inputs[4].ravel()[0].reshape(()), inputs[5].ravel()[0].reshape(())
    return inputs


def seconds(call: Callable[[], object]) -> float:
    """CPU time of a call."""
    started = time.process_time()
    call()
    return time.process_time() - started


@dataclass
class Times:
    """Times of one stack, in CPU seconds; the peer's is 0 where it has no such operator."""

    name: str
    nodes: int = 0
    operations: int = 0
    ours: float = 0.0
    ort: float = 0.0
    peer: float = 0.0
    different: int = 0


STACK_TIMES = Table(
    "stacks",
    {
        **{"stack": "", "nodes": "", "GOP": ".2f", "onnxq s": ".4f", "GOP/s": ".0f"},
        **{"ORT s": ".4f", "onnxq / ORT": ".1f", "ReferenceEvaluator s": ".2f"},
        **{"ReferenceEvaluator / onnxq": ".1f", "elements that differ from ORT": ""},
    },
)


def timed(name: str, layers: list[Layer], rounds: int) -> Times:
    """All three on every node."""
    total = Times(name, len(layers), sum(layer.operations for layer in layers))
    calls = [(kernel_of(layer), session_of(layer)) for layer in layers]
    total.different = sum(int(np.count_nonzero(ours() != ort())) for ours, ort in calls)
    for layer in layers:
        if layer.domain == "":  # onnx has no operators of com.microsoft
            total.peer += seconds(evaluator_of(layer))
    best = np.full((len(layers), 2), np.inf)
    for _ in range(rounds):  # in turns, so that a slow moment of the machine hits both
        for i, pair in enumerate(calls):
            best[i] = np.minimum(best[i], [seconds(call) for call in pair])
    total.ours, total.ort = best.sum(axis=0).tolist()
    return total


def kernel_of(layer: Layer) -> Callable[[], Array]:
    """Our kernel on the layer."""
    operator = catalog.find_integer(layer.op_type, layer.domain)
    if operator is None:
        raise click.ClickException(f"{layer.op_type}: onnxq has no kernel for it")
    call = IntegerCall(layer.op_type, layer.inputs, attributes=layer.attributes)
    return lambda: operator.kernel(call)[0]


def session_of(layer: Layer) -> Callable[[], Array]:
    """ONNX Runtime on the layer."""
    one = session(model_of(layer, layer.inputs))
    return lambda: np.asarray(one.run(None, {"in0": layer.inputs[0]})[0])


def evaluator_of(layer: Layer) -> Callable[[], list[Array]]:
    """The reference of onnx itself on the layer, with one scale for the weights."""
    evaluator = ReferenceEvaluator(model_of(layer, per_tensor(layer)))
    return lambda: [np.asarray(y) for y in evaluator.run(None, {"in0": layer.inputs[0]})]


@benchmark(STACK_TIMES)
@click.option("--nodes", type=int, help="only that many of each stack")
@with_rounds(15)
@with_names(STACKS)
def measure(nodes: int | None, rounds: int, names: Sequence[str]) -> Iterator[Row | Missed]:
    """Times of each stack, and the bounds that they break."""
    for name in names or STACKS:
        with threadpool_limits(1):
            found = timed(name, list(STACKS[name](np.random.default_rng(0)))[:nodes], rounds)
        yield STACK_TIMES.row(
            name,
            found.nodes,
            found.operations / 1e9,
            found.ours,
            found.operations / found.ours / 1e9,
            found.ort,
            found.ours / found.ort,
            found.peer or None,
            found.peer / found.ours or None,
            found.different,
        )
        if found.different:
            yield Missed(f"{name}: {found.different} elements differ")
        if name == "resnet" and found.ours > ORT_RATIO * found.ort:
            yield Missed(f"{name}: more than {ORT_RATIO} times ONNX Runtime's time")
        if name == "resnet" and found.peer < PEER_RATIO * found.ours:
            yield Missed(f"{name}: not {PEER_RATIO} times faster than ReferenceEvaluator")

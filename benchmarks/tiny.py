"""Tiny models, of tens of microseconds: is any file with integers slower than float, or larger?

    python -m benchmarks tiny   # five minutes

Twelve kinds in five sizes each, with drawn weights, quantized by default for this machine from 256
drawn samples of one row each, and run one row at a time. "time / float" is the median of paired
runs and its interval of 95%, over three sessions of each file, opened in turns (A B B A A B);
"float / float" is that of the float file beside itself, what the clock can tell. "dB": on 256 rows
that nothing saw; inf: nothing is in integers.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import RATIO, Missed, Row, Table
from onnxq.graph.io import save
from scripts._graphs import model_of
from scripts._tables import sqnr_db
from scripts._timing import Ratio, paired_ratio, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import onnxruntime

    Singles = npt.NDArray[np.float32]

TINY = Table(
    "models",
    {
        **{"model": "", "float us": ".1f", "integer nodes": "", "nodes": "", "size": ".2f"},
        **{"time / float": RATIO, "float / float": RATIO, "dB": ".1f"},
    },
)
SAMPLES, ROUNDS, SESSIONS = 256, 40, 3
LARGER = "{}: {:.0%} of float's size"
SLOWER = "{}: {} of float's time, where float beside itself is {}"


@dataclass
class Net:
    """A model while it grows, from input x to its last tensor; weights keep the power.

    Attributes:
        shape: of x, without the batch.
        last: tensor that the next node reads.
    """

    shape: Sequence[int]
    last: str = "x"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, op_type: str, *constants: npt.NDArray[np.generic], **attributes: Any) -> Net:
        """Adds a node that reads the last tensor and constants."""
        number = len(self.nodes)
        names = [f"c{number}_{i}" for i in range(len(constants))]
        self.constants |= dict(zip(names, constants, strict=True))
        self.nodes.append(
            helper.make_node(op_type, [self.last, *names], [f"t{number}"], **attributes)
        )
        self.last = f"t{number}"
        return self

    def join(self, op_type: str, *others: str) -> Net:
        """Adds a node that reads the last tensor and these."""
        number = len(self.nodes)
        self.nodes.append(helper.make_node(op_type, [self.last, *others], [f"t{number}"]))
        self.last = f"t{number}"
        return self

    def weight(self, *shape: int, inputs: int) -> Singles:
        """Normal numbers of power 2 / inputs."""
        return self.random.normal(0, np.sqrt(2 / inputs), shape).astype(np.float32)

    def linear(self, inputs: int, outputs: int) -> Net:
        """A Gemm with a bias."""
        bias = self.random.normal(0, 0.1, outputs).astype(np.float32)
        return self.add("Gemm", self.weight(inputs, outputs, inputs=inputs), bias)

    def matmul(self, inputs: int, outputs: int) -> Net:
        """A MatMul with a matrix."""
        return self.add("MatMul", self.weight(inputs, outputs, inputs=inputs))

    def conv(self, inputs: int, outputs: int, kernel: Sequence[int], **attributes: Any) -> Net:
        """A Conv with a bias."""
        each = inputs // int(attributes.get("group", 1))
        w = self.weight(outputs, each, *kernel, inputs=each * int(np.prod(kernel)))
        bias = self.random.normal(0, 0.1, outputs).astype(np.float32)
        return self.add("Conv", w, bias, **attributes)

    def model(self) -> onnx.ModelProto:
        """The model of all nodes so far."""
        self.nodes[-1].output[0] = "y"
        return model_of(self.nodes, self.constants, {"x": ["n", *self.shape]}, {"y": None}, 17)


def mlp(width: int) -> Net:
    """Three Gemms with Relus."""
    net = Net([width]).linear(width, width).add("Relu").linear(width, width).add("Relu")
    return net.linear(width, 10)


def tabular(width: int) -> Net:
    """Gemms with BatchNormalization and a Sigmoid."""
    net = Net([20])
    for inputs in (20, width):
        ones = np.ones(width, np.float32)
        net.linear(inputs, width).add("BatchNormalization", ones, ones * 0, ones * 0, ones * 2)
        net.add("Relu")
    return net.linear(width, 1).add("Sigmoid")


def wake_word(width: int) -> Net:
    """Convs along time, pooled."""
    net = Net([1, 256]).conv(1, width, [9], strides=[4]).add("Relu")
    net.conv(width, width, [5], strides=[2]).add("Relu").add("GlobalAveragePool").add("Flatten")
    return net.linear(width, 4)


def digits(width: int) -> Net:
    """Convs on pictures of 14 by 14."""
    net = Net([1, 14, 14]).conv(1, width, [3, 3]).add("Relu")
    net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).conv(width, 2 * width, [3, 3])
    return net.add("Relu").add("Flatten").linear(2 * width * 16, 10)


def mobile(width: int) -> Net:
    """Depthwise and pointwise Convs."""
    net = Net([3, 16, 16]).conv(3, width, [3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for _ in range(2):
        net.add("Relu").conv(width, width, [3, 3], group=width, pads=[1, 1, 1, 1])
        net.add("Relu").conv(width, width, [1, 1])
    return net.add("GlobalAveragePool").add("Flatten").linear(width, 10)


def residual(width: int) -> Net:
    """Convs with a sum."""
    net = Net([3, 8, 8]).conv(3, width, [3, 3], pads=[1, 1, 1, 1]).add("Relu")
    kept = net.last
    net.conv(width, width, [3, 3], pads=[1, 1, 1, 1]).add("Relu")
    net.conv(width, width, [3, 3], pads=[1, 1, 1, 1]).join("Add", kept).add("Relu")
    return net.add("GlobalAveragePool").add("Flatten").linear(width, 10)


def recurrent(op_type: str, gates: int, width: int) -> Net:
    """A recurrent layer over 10 steps of 16 numbers, and a Gemm on the last one."""
    net = Net([10, 16]).add("Transpose", perm=[1, 0, 2])
    w = net.weight(1, gates * width, 16, inputs=16)
    r = net.weight(1, gates * width, width, inputs=2 * width)
    net.add(op_type, w, r, hidden_size=width)
    net.add("Gather", np.array(-1), axis=0).add("Squeeze", np.array([0]))
    return net.linear(width, 8)


def gru(width: int) -> Net:
    """A GRU."""
    return recurrent("GRU", 3, width)


def lstm(width: int) -> Net:
    """An LSTM."""
    return recurrent("LSTM", 4, width)


def dilated(width: int) -> Net:
    """Convs along time, further and further apart, with sums."""
    net = Net([4, 64]).conv(4, width, [1])
    for dilation in (1, 2, 4):
        kept = net.last
        net.conv(width, width, [3], dilations=[dilation], pads=[dilation] * 2).add("Relu")
        net.join("Add", kept)
    return net.conv(width, 2, [1])


def attention(width: int) -> Net:
    """One head over 16 tokens, with its normalization."""
    net = Net([16, width])
    ones = np.ones(width, np.float32)
    net.add("LayerNormalization", ones, ones * 0)
    normed = net.last
    net.matmul(width, width).add("Transpose", perm=[0, 2, 1])
    keys, net.last = net.last, normed
    net.matmul(width, width)
    values, net.last = net.last, normed
    net.matmul(width, width).join("MatMul", keys)
    net.add("Mul", np.array(width**-0.5)).add("Softmax", axis=-1)
    return net.join("MatMul", values).matmul(width, width).join("Add", "x")


def autoencoder(width: int) -> Net:
    """Gemms that narrow and widen, with Tanhs."""
    net = Net([width]).linear(width, width // 4).add("Tanh").linear(width // 4, 4).add("Tanh")
    return net.linear(4, width // 4).add("Tanh").linear(width // 4, width)


def feed_forward(width: int) -> Net:
    """Feed-forward blocks of a transformer, two, on 8 tokens."""
    net = Net([8, width])
    ones = np.ones(width, np.float32)
    for _ in range(2):
        kept = net.last
        net.add("LayerNormalization", ones, ones * 0).matmul(width, 2 * width).add("Relu")
        net.matmul(2 * width, width).join("Add", kept)
    return net.matmul(width, 4)


KINDS: Mapping[str, tuple[Callable[[int], Net], Sequence[int]]] = {
    "MLP": (mlp, (16, 32, 64, 128, 256)),
    "tabular": (tabular, (8, 16, 32, 64, 128)),
    "wake word": (wake_word, (4, 8, 16, 32, 64)),
    "digits": (digits, (2, 4, 8, 16, 32)),
    "mobile": (mobile, (4, 8, 16, 32, 64)),
    "residual": (residual, (4, 8, 16, 32, 64)),
    "GRU": (gru, (4, 8, 16, 32, 64)),
    "LSTM": (lstm, (4, 8, 16, 32, 64)),
    "dilated": (dilated, (4, 8, 16, 32, 64)),
    "attention": (attention, (8, 16, 32, 64, 128)),
    "autoencoder": (autoencoder, (16, 32, 64, 128, 256)),
    "feed forward": (feed_forward, (8, 16, 32, 64, 128)),
}


@benchmark(TINY)
def measure() -> Iterator[Row | Missed]:
    """A row per model; each one that is slower than float is missed."""
    for kind, (make, widths) in KINDS.items():
        for width in widths:
            net = make(width)
            yield from measured(f"{kind} {width}", net.model(), net.shape)


def measured(name: str, model: onnx.ModelProto, shape: Sequence[int]) -> Iterator[Row | Missed]:
    """The row of one model."""
    x, fresh = np.random.default_rng(1).standard_normal((2, SAMPLES, *shape), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        source, out = (Path(folder) / file for file in ("float.onnx", "int8.onnx"))
        onnx.save(model, source)
        made = onnxq.quantize(source, {"x": x}, target="auto")
        save(made, out)
        opened = [session(path) for path in (source, out, out, source, source, out)]
        wanted, got = (opened[i].run(None, {"x": fresh})[0] for i in (0, 1))
        floats, ours = [opened[i] for i in (0, 3, 4)], [opened[i] for i in (1, 2, 5)]
        feeds = {"x": x[:1]}
        ratio, us = beside(floats, ours, feeds)
        floor, _ = beside(floats, [session(source) for _ in range(SESSIONS)], feeds)
        verdict = made.verdict
        assert verdict is not None
        size = out.stat().st_size / source.stat().st_size
        nodes = verdict.integer_nodes + verdict.float_nodes
        yield TINY.row(
            name,
            us,
            verdict.integer_nodes,
            nodes,
            size,
            ratio.cell,
            floor.cell,
            sqnr_db(np.asarray(wanted), np.asarray(got)),
        )
        if size > 1 and verdict.integer_nodes:
            yield Missed(LARGER.format(name, size))
        if ratio.is_slower and ratio.low > floor.high:
            yield Missed(SLOWER.format(name, ratio, floor))


def beside(
    floats: Sequence[onnxruntime.InferenceSession],
    others: Sequence[onnxruntime.InferenceSession],
    feeds: Mapping[str, Singles],
) -> tuple[Ratio, float]:
    """(time of the others over float's, microseconds of float)."""
    runs = {
        f"{kind}{number}": lambda each=each: each.run(None, feeds)
        for number, pair in enumerate(zip(floats, others, strict=True))
        for kind, each in zip("fo", pair, strict=True)
    }
    times = taking_turns(runs, ROUNDS)
    theirs, ours = (
        np.concatenate([times[f"{kind}{i}"] for i in range(len(floats))]) for kind in "fo"
    )
    return paired_ratio(ours, theirs), float(np.median(theirs)) * 1e6

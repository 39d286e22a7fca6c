"""Measures which operators are slower in integers than in float inside an int8 network.

    python -m benchmarks elementwise

Each operator stands between two quantized 1x1 convolutions, batch 1, 28x28, in two forms:
    integers  Conv -> Q -> DQ -> op -> Q -> DQ -> Conv        ONNX Runtime fuses DQ, op and Q
    float     Conv -> Q -> DQ -> Max -> op -> Q -> DQ -> Conv  a Max of one input keeps it float
so that the float form pays for its DequantizeLinear, the Max (a copy), and QuantizeLinear. Where
onnxq writes the integer form itself (a lowered rule: ONNX Runtime fuses no such operator), that is
    integers  Conv -> Q -> what the operator's `lower` writes -> DQ -> Conv
    float     Conv -> Q -> DQ -> op -> Q -> DQ -> Conv
The time of the convolutions alone is measured too and subtracted from both. One thread, CPU time,
the three interleaved, medians of the differences.

The ratio is float / integers: below 1 integers lose. onnxq.targets lists the operators whose
geometric mean over the sizes is below SLOW in every variant; the last lines print that table.
Operators that run in float anyway (FLOAT_BETWEEN_QDQ: Gelu, HardSwish, ...) are not measured here;
their files in operators/ say what a table would take, which is the same for all: see Elu.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.tape import Tape

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_rounds
from benchmarks.harness.table import Row, Table
from onnxq import catalog
from onnxq.dtypes import UINT8
from onnxq.operator import NodePlan, Site
from onnxq.qparams import per_tensor
from scripts._timing import one_thread, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CHANNELS = (32, 64, 128)
SIDE = 28
SLOW = 0.9  # closer to 1 is noise, and leaving integers costs memory traffic that this does not see
SAMPLE_S = 0.004
FLOOR_US = 1.0  # less cannot be told from the time of the convolutions


OPERATORS = Table(
    "operators",
    {
        **{"operator": "", "channels": "", "convolutions": ".1f", "integers": ".1f"},
        **{"float": ".1f", "ratio": ".3f", "ran in integers": "", "ran in float": ""},
    },
    keys=2,
)
SLOW_OPERATORS = Table("slow", {"operator": "", "float / integers": ".2f"})


@dataclass(frozen=True, eq=False)
class Op:
    """One operator: its node, and (scale, zero point) of its output; None: those of its input.

    `constants` are inputs behind those that vary. `lowered`: integers are what `lower` writes.
    """

    op_type: str
    attributes: dict[str, Any] = field(default_factory=dict)
    inputs: int = 1
    constants: Sequence[np.ndarray | None] = ()
    output: tuple[float, int] | None = (0.02, 128)
    label: str = ""
    lowered: bool = False

    @property
    def name(self) -> str:
        """Name in the table."""
        return self.label or self.op_type


INPUT = (0.02, 128)
SLOPES = np.zeros(0, np.float32)  # stands for as many as there are channels
TWO, HALF = np.array(2, np.float32), np.array(0.5, np.float32)
SCALES_UP = np.array([1, 1, 2, 2], np.float32)
WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
HALVING: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
UPSAMPLE: dict[str, Any] = {
    "mode": "nearest",
    "nearest_mode": "floor",
    "coordinate_transformation_mode": "asymmetric",
}

OPS = (
    Op("Add", inputs=2, output=(0.03, 120)),
    Op("Mul", inputs=2, output=(0.03, 120)),
    Op("Concat", {"axis": 1}, inputs=2, output=(0.03, 120)),
    Op("Concat", {"axis": 1}, inputs=2, output=None, label="Concat, equal scales"),
    Op("Sigmoid", output=(1 / 256, 0)),
    Op("LeakyRelu", {"alpha": 0.1}, output=(0.02, 13)),
    Op("Softmax", {"axis": -1}, output=(1 / 256, 0)),
    Op("AveragePool", WINDOW, output=(0.015, 128)),
    Op("AveragePool", HALVING, output=(0.015, 128), label="AveragePool 2x2 stride 2"),
    Op("GlobalAveragePool", output=(0.01, 128)),
    Op("MaxPool", WINDOW, output=None),
    Op("MaxPool", HALVING, output=None, label="MaxPool 2x2 stride 2"),
    Op("Resize", {"mode": "nearest"}, constants=(None, SCALES_UP), output=None),
    Op("Resize", UPSAMPLE, constants=(None, SCALES_UP), output=None, label="Resize as torch does"),
    Op("Transpose", {"perm": [0, 1, 3, 2]}, output=None),
    Op("DepthToSpace", {"blocksize": 2}, output=None),
    Op("Where", inputs=2, output=(0.03, 120)),
    Op("Abs", output=(0.01, 0), lowered=True),
    Op("Neg", output=(0.02, 127), lowered=True),
    Op("Sub", inputs=2, output=(0.03, 120), lowered=True),
    Op("Div", constants=(TWO,), output=(0.01, 128), lowered=True),
    Op("Pow", constants=(TWO,), output=(0.03, 0), lowered=True, label="Pow 2"),
    Op("Pow", constants=(HALF,), output=(0.006, 0), lowered=True, label="Pow 0.5"),
    Op("Tanh", output=(1 / 128, 128), lowered=True),
    Op("HardSigmoid", {"alpha": 1 / 6}, output=(1 / 255, 0), lowered=True),
    Op("HardSigmoid", output=(1 / 250, 2), lowered=True, label="HardSigmoid, with Clip"),
    Op("PRelu", constants=(HALF,), output=(0.02, 13), lowered=True),
    Op("PRelu", constants=(SLOPES,), output=(0.02, 13), lowered=True, label="PRelu by channel"),
    Op("Elu", output=(0.015, 67), lowered=True),
    Op("Selu", output=(0.017, 103), lowered=True),
    Op("Celu", output=(0.015, 67), lowered=True),
    Op("Softplus", output=(0.01, 0), lowered=True),
    Op("Mish", output=(0.012, 26), lowered=True),
    Op("Log", output=(0.02, 200), lowered=True),
    Op("Sin", output=(1 / 127, 127), lowered=True),
    Op("Cos", output=(1 / 127, 127), lowered=True),
    Op("Sign", output=(1 / 127, 127), lowered=True),
)


class Builder:
    """Collects the nodes of one model."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def constant(self, array: np.ndarray) -> str:
        """The name of a new initializer."""
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The name of a new node's output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def qparams(self, qparams: tuple[float, int], dtype: type = np.uint8) -> list[str]:
        """Names of scale and zero point."""
        scale, zero_point = qparams
        return [self.constant(np.asarray(scale, np.float32)), self.constant(dtype(zero_point))]

    def input(self, shape: Sequence[int]) -> str:
        """A graph input that holds integers already, dequantized."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
        return self.node("DequantizeLinear", [name, *self.qparams(INPUT)])

    def output(self, integers: str) -> None:
        """Makes integers a graph output."""
        self.outputs.append(helper.make_tensor_value_info(integers, TensorProto.UINT8, None))

    def quantized(self, value: str, qparams: tuple[float, int]) -> str:
        """The integers of a float value."""
        return self.node("QuantizeLinear", [value, *self.qparams(qparams)])

    def round_trip(self, value: str, qparams: tuple[float, int]) -> str:
        """The value behind Q and DQ."""
        integers = self.quantized(value, qparams)
        return self.node("DequantizeLinear", [integers, *self.qparams(qparams)])

    def conv(self, value: str, channels: int, rng: np.random.Generator) -> str:
        """A 1x1 convolution with int8 weights that keeps the number of channels."""
        w = rng.integers(-64, 65, (channels, channels, 1, 1), dtype=np.int8)
        weight = self.node(
            "DequantizeLinear", [self.constant(w), *self.qparams((0.01, 0), np.int8)]
        )
        return self.node("Conv", [value, weight])

    def model(self) -> onnx.ModelProto:
        """Model of what was collected."""
        graph = helper.make_graph(self.nodes, "bench", self.inputs, self.outputs, self.initializers)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10
        return model


def network(op: Op, channels: int, form: str) -> onnx.ModelProto:
    """The model: form is "integers" or "float"."""
    rng, b = np.random.default_rng(0), Builder()
    x = b.input([1, channels, SIDE, SIDE])
    if op.lowered and form == "integers":
        integers = [b.quantized(b.conv(x, channels, rng), INPUT) for _ in range(op.inputs)]
        y = lowered(b, op, integers, channels)
        value = b.node("DequantizeLinear", [y, *b.qparams(op.output or INPUT)])
        b.output(b.quantized(b.conv(value, channels, rng), INPUT))
        return b.model()
    values = [b.round_trip(b.conv(x, channels, rng), INPUT) for _ in range(op.inputs)]
    if form == "float" and not op.lowered:
        values = [b.node("Max", [value]) for value in values]
    if op.op_type == "Where":
        values.insert(0, b.constant(rng.random((1, channels, SIDE, SIDE)) < 0.5))
    extra = ["" if c is None else b.constant(c) for c in constants_of(op, channels)]
    result = b.round_trip(
        b.node(op.op_type, [*values, *extra], **op.attributes), op.output or INPUT
    )
    b.output(b.quantized(b.conv(result, result_shape(op, channels)[1], rng), INPUT))
    return b.model()


def constants_of(op: Op, channels: int) -> list[np.ndarray | None]:
    """The operator's constants, slopes by channel made."""
    by_channel = np.linspace(0.1, 0.4, channels, dtype=np.float32).reshape(-1, 1, 1)
    return [by_channel if c is SLOPES else c for c in op.constants]


def lowered(b: Builder, op: Op, integers: Sequence[str], channels: int) -> str:
    """The name of the result of the operator's integer form, as onnxq writes it."""
    operator, shape = catalog.find(op.op_type), [1, channels, SIDE, SIDE]
    assert operator is not None, op.op_type
    qparams = [per_tensor(*pair, UINT8) for pair in (INPUT, op.output or INPUT)]
    reals = [ir.val(f"{name}_real", ir.DataType.FLOAT, shape) for name in integers]
    extra = [
        ir.val(f"k{i}", ir.DataType.FLOAT, c.shape, const_value=ir.tensor(c))
        for i, c in enumerate(constants_of(op, channels))
        if c is not None
    ]
    node = ir.node(op.op_type, [*reals, *extra], op.attributes, name="op")
    plan = NodePlan((qparams[0],) * len(integers) + (None,) * len(extra), (qparams[1],))
    tape = Tape()
    inputs = [*(ir.val(name, ir.DataType.UINT8, shape) for name in integers), *extra]
    (y,) = operator.lower(Site(tape, node, inputs, plan))
    for i, value in enumerate(v for written in tape.nodes for v in written.outputs):
        value.name = f"lowered{i}"
    for value in tape.initializers:
        assert value.const_value is not None
        b.initializers.append(numpy_helper.from_array(value.const_value.numpy(), value.name))
    b.nodes += [ir.to_proto(written) for written in tape.nodes]
    assert y.name is not None
    return y.name


def convolutions(op: Op, channels: int) -> onnx.ModelProto:
    """The convolutions of `network` alone: a chain if the shape stays, else side by side."""
    rng, b = np.random.default_rng(0), Builder()
    shape = [1, channels, SIDE, SIDE]
    x = b.input(shape)
    last = ""
    for _ in range(op.inputs):
        last = b.quantized(b.conv(x, channels, rng), INPUT)
        b.output(last)
    after = result_shape(op, channels)
    if after == shape:
        b.outputs.pop()
        middle = b.node("DequantizeLinear", [last, *b.qparams(INPUT)])
    else:
        middle = b.input(after)
    b.output(b.quantized(b.conv(middle, after[1], rng), INPUT))
    return b.model()


def result_shape(op: Op, channels: int) -> list[int]:
    """Shape between the operator and the second convolution."""
    if op.attributes is HALVING:
        return [1, channels, SIDE // 2, SIDE // 2]
    shapes = {
        "Concat": [1, 2 * channels, SIDE, SIDE],
        "GlobalAveragePool": [1, channels, 1, 1],
        "Resize": [1, channels, 2 * SIDE, 2 * SIDE],
        "DepthToSpace": [1, channels // 4, 2 * SIDE, 2 * SIDE],
    }
    return shapes.get(op.op_type, [1, channels, SIDE, SIDE])


def opened(model: onnx.ModelProto) -> tuple[Callable[[], object], str]:
    """A function that runs the model once, and what ONNX Runtime runs between the convolutions."""
    options = one_thread()
    with TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        options.optimized_model_filepath = str(optimized)
        made = session(model, options)
        nodes = [n.op_type for n in onnx.load(optimized, load_external_data=False).graph.node]
    first, last = nodes.index("QLinearConv"), len(nodes) - 1 - nodes[::-1].index("QLinearConv")
    between = [n for n in nodes[first:last] if n != "QLinearConv"]
    rng = np.random.default_rng(1)
    feeds = {i.name: rng.integers(0, 256, i.shape, dtype=np.uint8) for i in made.get_inputs()}
    return lambda: made.run(None, feeds), " ".join(between)


def time_once(run: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        run()
    return (time.process_time() - start) / count


@dataclass(frozen=True)
class Timed:
    """Microseconds of the part between the convolutions, and what ONNX Runtime ran there."""

    convolutions_us: float
    integers_us: float
    float_us: float
    ran_integers: str
    ran_float: str

    @property
    def ratio(self) -> float:
        """Time in float over that in integers."""
        return max(self.float_us, FLOOR_US) / max(self.integers_us, FLOOR_US)


def timed(op: Op, channels: int, rounds: int) -> Timed:
    """The operator in both forms."""
    models = [network(op, channels, "integers"), network(op, channels, "float")]
    runs, ran = zip(*(opened(m) for m in [*models, convolutions(op, channels)]), strict=True)
    counts = [max(3, int(SAMPLE_S / max(time_once(run, 20), 1e-6))) for run in runs]
    samples = [[time_once(r, c) for r, c in zip(runs, counts, strict=True)] for _ in range(rounds)]
    return Timed(
        1e6 * statistics.median(s[2] for s in samples),
        1e6 * statistics.median(s[0] - s[2] for s in samples),
        1e6 * statistics.median(s[1] - s[2] for s in samples),
        ran[0],
        ran[1],
    )


def slow(ratios: Mapping[Op, Sequence[float]]) -> dict[str, float]:
    """op_type -> geometric mean of the ratios, where it is below SLOW for each of its variants."""
    means: dict[str, list[float]] = {}
    for op, found in ratios.items():
        means.setdefault(op.op_type, []).append(
            math.exp(statistics.fmean(math.log(r) for r in found))
        )
    return {op_type: max(each) for op_type, each in means.items() if max(each) < SLOW}


@benchmark(OPERATORS, SLOW_OPERATORS)
@with_rounds(31)
def measure(rounds: int) -> Iterator[Row]:
    """Times of each operator by channels; then the operators that are slow in integers."""
    ratios: dict[Op, list[float]] = {}
    for op in OPS:
        for channels in CHANNELS:
            found = timed(op, channels, rounds)
            ratios.setdefault(op, []).append(found.ratio)
            us = (found.convolutions_us, found.integers_us, found.float_us)
            ran = (found.ran_integers, found.ran_float)
            yield OPERATORS.row(op.name, channels, *us, found.ratio, *ran)
    for op_type, ratio in slow(ratios).items():
        yield SLOW_OPERATORS.row(op_type, ratio)

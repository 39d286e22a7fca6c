"""Mobile networks: what their parts take in integers and in float, and which mix is fastest.

    python -m benchmarks mobile                      # all of it, some five minutes
    python -m benchmarks mobile lcnet efficientnet   # the tables, and these networks

Depthwise: a 3x3 and a 5x5 convolution between two of 1x1, less the two alone, channels last on
integers, blocked in float. Element-wise: as benchmarks/elementwise.py measures. Networks
(scripts/_architectures, random weights, batch 1): the default, and everything float ahead of the
n-th convolution. One thread, CPU time, variants take turns; a ratio is the median over rounds of
time over that of float, with its quartiles: below 1 it is faster. SQNR over 16 samples that
nothing was calibrated on.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import onnxq
from benchmarks.elementwise import HALVING, WINDOW, Op, timed
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Row, Table
from onnxq.graph.io import save
from onnxq.qconfig import default_qconfig_mapping
from scripts._architectures import Size, build
from scripts._tables import sqnr_db
from scripts._timing import runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    import onnx

    Batch = Mapping[str, npt.NDArray[np.float32]]

CHANNELS = (16, 24, 32, 48, 58, 60, 64, 72, 88, 96, 116, 120, 128, 240)
SIDE, ROUNDS, TARGET = 28, 31, "x86-vnni"
NETWORKS = {
    "shufflenet": (),
    "shufflenetv2": (),
    "mobilenetv3": (4, 8, 12, 16),
    "lcnet": (4, 8, 12, 16),
    "text_direction": (6, 18, 30, 36),
    "efficientnet": (5, 15, 25, 30),
}
"""Architecture -> numbers of convolutions that are left in float, ahead of the rest."""
QUARTILES = "{0[0]:.2f} ({0[1]:.2f} to {0[2]:.2f})"
DEPTHWISE = Table(
    "depthwise",
    {"channels": "", **{f"{k}x{k} {f}": ".0f" for k in (3, 5) for f in ("integers", "float")}},
)
OPERATORS = Table(
    "operators",
    {"operator": "", "integers": ".1f", "float": ".1f", "ran on integers": "", "ran in float": ""},
)
NETWORK_TIMES = Table(
    "networks",
    {"network": "", "variant": "", "time over float": QUARTILES, "dB": ".1f"},
    keys=2,
)
CALIBRATION_SEED, TEST_SEED, SPEED_SEED, SAMPLES = 7, 11, 5, 16
OPS = (
    Op("HardSwish", output=(0.015, 25), lowered=True),
    Op("HardSigmoid", {"alpha": 1 / 6}, output=(1 / 255, 0), lowered=True),
    Op("Sigmoid", output=(1 / 256, 0)),
    Op("Mul", inputs=2, output=(0.03, 120)),
    Op("AveragePool", WINDOW, output=(0.015, 128)),
    Op("AveragePool", HALVING, output=(0.015, 128), label="AveragePool 2x2 stride 2"),
)


def chain(channels: int, kernel: int | None, *, integers: bool) -> onnx.ModelProto:
    """1x1, depthwise if there is a kernel, 1x1."""
    random = np.random.default_rng(0)
    kernels = [(1, 1), *([] if kernel is None else [(kernel, channels)]), (1, 1)]
    constants: dict[str, npt.NDArray[np.generic]] = {
        "s": np.array(0.02, np.float32),
        "z": np.array(128, np.uint8),
        "wz": np.array(0, np.int8),
    }
    nodes, x = [], "x"
    for i, (size, group) in enumerate(kernels):
        w = random.integers(-127, 128, (channels, channels // group, size, size))
        constants[f"w{i}"] = w.astype(np.int8 if integers else np.float32)
        conv = functools.partial(
            helper.make_node,
            outputs=[f"y{i}"],
            group=group,
            kernel_shape=[size, size],
            pads=[size // 2] * 4,
        )
        if integers:
            slots = [x, "s", "z", f"w{i}", "s", "wz", "s", "z"]
            node = conv("QLinearConv", slots, domain="com.microsoft", channels_last=1)
        else:
            node = conv("Conv", [x, f"w{i}"])
        nodes.append(node)
        x = f"y{i}"
    kind = TensorProto.UINT8 if integers else TensorProto.FLOAT
    shape = [1, SIDE, SIDE, channels] if integers else [1, channels, SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(x, kind, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def depthwise_us(channels: int, kernel: int) -> tuple[float, float]:
    """Microseconds of a depthwise convolution on integers and in float."""
    found = []
    for integers in (True, False):
        shape = (1, SIDE, SIDE, channels) if integers else (1, channels, SIDE, SIDE)
        x = np.zeros(shape, np.uint8) if integers else np.ones(shape, np.float32)
        models = {"with": kernel, "without": None}
        sessions = {
            name: session(chain(channels, k, integers=integers)) for name, k in models.items()
        }
        times = taking_turns(runs_on(sessions, {"x": x}), ROUNDS)
        found.append(1e6 * float(np.median(times["with"] - times["without"])))
    return found[0], found[1]


def depthwise() -> Iterator[Row]:
    """Microseconds of depthwise convolutions."""
    for channels in CHANNELS:
        numbers = [us for kernel in (3, 5) for us in depthwise_us(channels, kernel)]
        yield DEPTHWISE.row(channels, *numbers)


def element_wise() -> Iterator[Row]:
    """Microseconds of operators between convolutions, conversions to and from float included."""
    for op in OPS:
        found = timed(op, 128, ROUNDS)
        us = (found.integers_us, found.float_us)
        yield OPERATORS.row(op.name, *us, found.ran_integers, found.ran_float)


def network(name: str, cuts: tuple[int, ...], folder: Path) -> Iterator[Row]:
    """Times of a network's variants over float."""
    module, feeds = build(name, Size.REAL)
    source = folder / f"{name}.onnx"
    onnxq.export(module, feeds(4, SPEED_SEED), source)
    calibration, test, one = (
        {key: x.numpy() for key, x in feeds(n, seed).items()}
        for n, seed in ((SAMPLES, CALIBRATION_SEED), (SAMPLES, TEST_SEED), (1, SPEED_SEED))
    )
    nodes = list(onnxq.prepare(source, target=TARGET).model.graph)
    convolutions = [i for i, node in enumerate(nodes) if node.op_type == "Conv"]
    paths = {"float": source}
    for cut in (0, *cuts):
        mapping = default_qconfig_mapping()
        for node in nodes[: convolutions[cut]]:
            mapping = mapping.set_node(str(node.name), None)
        label = f"the first {cut} of {len(convolutions)} float" if cut else "default"
        paths[label] = folder / f"{name}.{cut}.onnx"
        int8 = onnxq.quantize(source, calibration, qconfig=mapping, target=TARGET)
        save(int8, paths[label])
    sessions = {label: session(path) for label, path in paths.items()}
    times = taking_turns(runs_on(sessions, one), ROUNDS)
    (wanted,) = sessions.pop("float").run(None, test)
    for label, each in sessions.items():
        low, middle, high = np.quantile(times[label] / times["float"], (0.25, 0.5, 0.75))
        (got,) = each.run(None, test)
        yield NETWORK_TIMES.row(name, label, [middle, low, high], sqnr_db(wanted, got))


@benchmark(DEPTHWISE, OPERATORS, NETWORK_TIMES, needs=("torch",))
@with_names(NETWORKS)
def measure(names: Sequence[str]) -> Iterator[Row]:
    """The parts, then the networks."""
    yield from depthwise()
    yield from element_wise()
    with tempfile.TemporaryDirectory() as folder:
        for name in names or NETWORKS:
            yield from network(name, NETWORKS[name], Path(folder))

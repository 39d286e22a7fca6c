"""Speed of dynamic quantization: LSTM, GRU and RNN over 32 steps.

    python -m benchmarks recurrent [--speedups]

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. Above 1, the variant is faster.

Each operator is measured in float and in each precision, input size = hidden size, batch 1 and 8;
and what objective 'speed' and 'size' choose. `float again` is a second session of the float model:
how far from 1 a ratio is by chance. With --speedups, writes onnxq/targets/recurrent_speedups.csv,
which planning uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import numpy as np
import onnx_ir as ir
from onnx import helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from benchmarks.parts.speedups import write_speedups
from onnxq.errors import OnnxqError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from onnxq.targets.speedups import GATES
from scripts._graphs import model_of
from scripts._timing import runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx

    from benchmarks.parts.speedups import Key
    from scripts._timing import Sessions

STEPS = 32
BATCHES = (1, 8)
HIDDEN = (32, 64, 128, 192, 256, 384, 512, 1024)
ROUNDS = 15
TIME_S = 0.02  # of one variant in one round, at least
INT8 = NarrowRangeObserver.with_args()
VARIANTS = ("float again", "dynamic_int8", "weight_only")
SIZES = Table(
    "sizes",
    {
        **{"operator": "", "hidden": "", "batch": "", "float, ms": ".3f"},
        **{**dict.fromkeys(VARIANTS, ".2f"), "bytes": ".2f", "speed, size": ""},
    },
    keys=3,
)
PRECISIONS = {"dynamic_int8": Precision.DYNAMIC_INT8, "weight_only": Precision.WEIGHT_ONLY}


@dataclass(frozen=True)
class Net:
    """One operator: op_type, hidden size, batch, and for GRU which form of its reset gate."""

    op_type: str
    hidden: int
    batch: int
    linear: int = 1

    @property
    def name(self) -> str:
        """Name in the tables."""
        first = self.op_type == "GRU" and not self.linear
        return "GRU, reset first" if first else self.op_type

    def model(self) -> onnx.ModelProto:
        """In float, weights as PyTorch draws them."""
        random, reach = np.random.default_rng(0), 1 / np.sqrt(self.hidden)
        rows = GATES[self.op_type] * self.hidden
        shapes = {"w": (1, rows, self.hidden), "r": (1, rows, self.hidden), "b": (1, 2 * rows)}
        node = helper.make_node(self.op_type, ["x", *shapes], ["y"], "net", hidden_size=self.hidden)
        if self.op_type == "GRU":
            node.attribute.append(helper.make_attribute("linear_before_reset", self.linear))
        size = [STEPS, self.batch, self.hidden]
        constants = {name: random.uniform(-reach, reach, s) for name, s in shapes.items()}
        return model_of([node], constants, {"x": size}, {"y": None}, opset=21)


def nets() -> list[Net]:
    """Nets of the table."""
    kinds = [("LSTM", 1), ("GRU", 1), ("GRU", 0), ("RNN", 1)]
    return [
        Net(op, hidden, batch, linear)
        for op, linear in kinds
        for hidden in HIDDEN
        for batch in BATCHES
    ]


def quantized(net: Net, precision: Precision) -> ir.Model:
    """In that precision."""
    spec = QConfigMapping().set_global(QConfigDynamic(INT8, precision))
    return onnxq.quantize_dynamic(net.model(), spec, target="auto")


def ratios_of(sessions: Sessions, net: Net) -> tuple[float, dict[str, float]]:
    """(milliseconds in float, ratio by variant); the variant "float" is the measure."""
    x = np.random.default_rng(1).standard_normal((STEPS, net.batch, net.hidden))
    times = taking_turns(runs_on(sessions, {"x": x.astype(np.float32)}), ROUNDS, TIME_S)
    plain = times["float"]
    return 1000 * float(np.median(plain)), {
        name: float(np.median(plain / own)) for name, own in times.items() if name != "float"
    }


def measured(net: Net) -> tuple[float, dict[str, float]]:
    """`ratios_of` the net in each precision."""
    sessions = {"float": session(net.model()), "float again": session(net.model())}
    sessions |= {name: session(quantized(net, precision)) for name, precision in PRECISIONS.items()}
    return ratios_of(sessions, net)


def chosen(net: Net) -> str:
    """Precisions of the node with objective speed, and with size."""
    return ", ".join(_precision_of(net, objective) for objective in ("speed", "size"))


def _precision_of(net: Net, objective: str) -> str:
    try:
        model = onnxq.quantize_dynamic(net.model(), target="auto", objective=objective)
    except OnnxqError:  # nothing to quantize
        return "float"
    kinds = {node.op_type for node in model.graph}
    if {"Scan", "DynamicQuantizeLSTM"} & kinds:
        return "dynamic_int8"
    return "weight_only" if "Cast" in kinds else "float"


def smallest(found: Mapping[Net, float]) -> dict[Key, list[float]]:
    """Speedups as planning reads them; of a GRU, of the slower of its two kinds.

    `stored` runs the float kernel on the same floats, so that its ratios differ from 1 by chance
    alone: it has no rows, and counts as fast as float.
    """
    speedups: dict[Key, dict[int, float]] = {}
    for net, ratio in found.items():
        key = (net.op_type, "dynamic_int8", 8, net.hidden, GATES[net.op_type] * net.hidden)
        by_batch = speedups.setdefault(key, {})
        by_batch[net.batch] = min(ratio, by_batch.get(net.batch, ratio))
    return {key: [by_batch[batch] for batch in BATCHES] for key, by_batch in speedups.items()}


@benchmark(SIZES)
@click.option("--speedups", is_flag=True, help="write the table that planning reads, too")
def measure(speedups: bool) -> Iterator[Row]:
    """Ratios of every net."""
    found: dict[Net, float] = {}
    for net in nets():
        ms, ratios = measured(net)
        found[net] = ratios["dynamic_int8"]
        full = len(net.model().SerializeToString())
        small = len(ir.to_proto(quantized(net, Precision.DYNAMIC_INT8)).SerializeToString())
        cells = (ratios[name] for name in VARIANTS)
        yield SIZES.row(net.name, net.hidden, net.batch, ms, *cells, small / full, chosen(net))
    if speedups:
        write_speedups("recurrent_speedups.csv", BATCHES, smallest(found))

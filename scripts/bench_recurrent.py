"""Speed of dynamic quantization: LSTM, GRU and RNN over 32 steps.

    python scripts/bench_recurrent.py sizes [--gains]
    python scripts/bench_recurrent.py forms

One thread, CPU time of that thread; all variants take turns in every round, and a ratio is the
median over the rounds of what was measured in the same round. Above 1, the variant is faster.

`sizes`: each operator in float and in each form, input size = hidden size, batch 1 and 8; and what
objective 'speed' and 'size' choose. `float again` is a second session of the float model: how far
from 1 a ratio is by chance. With --gains, writes onnxq/targets/recurrent_gains.csv, which planning
uses.
`forms`: other ways to write a GRU in integers that were tried: the body in a Loop, all steps
written out, the fused operators of com.microsoft written by hand, float products in the Scan, and
stored weights by DequantizeLinear.
What both printed is in scripts/bench_recurrent.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import onnxq
from onnxq.errors import OnnxqError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import DynamicForm
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from onnxq.targets.gains import GATES
from scripts._gains import write_gains
from scripts._gru_variants import VARIANTS

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

STEPS = 32
BATCHES = (1, 8)
HIDDEN = (32, 64, 128, 192, 256, 384, 512, 1024)
ROUNDS = 15
TIME_S = 0.02  # of one variant in one round, at least
INT8 = NarrowRangeObserver.with_args()
FORMS = {"integer": DynamicForm.INTEGER, "stored": DynamicForm.STORED}
Sessions = Mapping[str, onnxruntime.InferenceSession]


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
        graph = helper.make_graph(
            [node],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [
                numpy_helper.from_array(random.uniform(-reach, reach, s).astype(np.float32), name)
                for name, s in shapes.items()
            ],
        )
        opsets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def nets() -> list[Net]:
    """Nets of the table."""
    kinds = [("LSTM", 1), ("GRU", 1), ("GRU", 0), ("RNN", 1)]
    return [
        Net(op, hidden, batch, linear)
        for op, linear in kinds
        for hidden in HIDDEN
        for batch in BATCHES
    ]


def quantized(net: Net, form: DynamicForm) -> ir.Model:
    """In that form."""
    spec = QConfigMapping().set_global(QConfigDynamic(INT8, form))
    return onnxq.quantize_dynamic(net.model(), spec, target="auto")


def session(model: onnx.ModelProto | ir.Model) -> onnxruntime.InferenceSession:
    """With one thread."""
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def timed(sessions: Sessions, feeds: dict[str, Floats]) -> dict[str, list[float]]:
    """CPU seconds per run, by variant, one per round."""
    repeats = {}
    for name, one in sessions.items():
        one.run(None, feeds)
        start = time.thread_time()
        one.run(None, feeds)
        repeats[name] = max(1, round(TIME_S / max(time.thread_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(ROUNDS):
        for name in list(sessions)[:: 1 if turn % 2 else -1]:
            start = time.thread_time()
            for _ in range(repeats[name]):
                sessions[name].run(None, feeds)
            times[name].append((time.thread_time() - start) / repeats[name])
    return times


def ratios(sessions: Sessions, net: Net) -> tuple[float, dict[str, float]]:
    """(milliseconds in float, ratio by variant); the variant "float" is the measure."""
    x = np.random.default_rng(1).standard_normal((STEPS, net.batch, net.hidden))
    times = timed(sessions, {"x": x.astype(np.float32)})
    plain = times["float"]
    return 1000 * statistics.median(plain), {
        name: statistics.median(a / b for a, b in zip(plain, own, strict=True))
        for name, own in times.items()
        if name != "float"
    }


def measured(net: Net) -> tuple[float, dict[str, float]]:
    """`ratios` of the net in each form."""
    sessions = {"float": session(net.model()), "float again": session(net.model())}
    sessions |= {name: session(quantized(net, form)) for name, form in FORMS.items()}
    return ratios(sessions, net)


def chosen(net: Net) -> str:
    """Forms of the node with objective speed, and with size."""
    return ", ".join(_form_of(net, objective) for objective in ("speed", "size"))


def _form_of(net: Net, objective: str) -> str:
    try:
        model = onnxq.quantize_dynamic(net.model(), target="auto", objective=objective)
    except OnnxqError:  # nothing to quantize
        return "float"
    kinds = {node.op_type for node in model.graph}
    if {"Scan", "DynamicQuantizeLSTM"} & kinds:
        return "integer"
    return "stored" if "Cast" in kinds else "float"


def print_sizes() -> None:
    """The table of all nets."""
    columns = "float, ms | float again | integer | stored | bytes | speed, size"
    print(f"| operator | hidden | batch | {columns} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for net in nets():
        ms, found = measured(net)
        full = len(net.model().SerializeToString())
        small = len(ir.to_proto(quantized(net, DynamicForm.INTEGER)).SerializeToString())
        cells = " | ".join(f"{found[name]:.2f}" for name in ("float again", *FORMS))
        print(
            f"| {net.name} | {net.hidden} | {net.batch} | {ms:.3f} | {cells} "
            f"| {small / full:.2f} | {chosen(net)} |",
            flush=True,
        )


def print_gains() -> None:
    """Writes the table that planning reads; of a GRU, the slower of its two kinds.

    `stored` runs the float kernel on the same floats, so that its ratios differ from 1 by chance
    alone: it has no rows, and counts as fast as float.
    """
    found: dict[tuple[str, str, int, int, int], dict[int, float]] = {}
    for net in nets():
        ratio = measured(net)[1]["integer"]
        key = (net.op_type, "integer", 8, net.hidden, GATES[net.op_type] * net.hidden)
        by_batch = found.setdefault(key, {})
        by_batch[net.batch] = min(ratio, by_batch.get(net.batch, ratio))
    gains = {key: [by_batch[batch] for batch in BATCHES] for key, by_batch in found.items()}
    write_gains("recurrent_gains.csv", BATCHES, gains)


def print_forms() -> None:
    """Ways to write a GRU."""
    print(f"| hidden | batch | float, ms | onnxq | {' | '.join(VARIANTS)} |")
    print("|---" * (4 + len(VARIANTS)) + "|")
    for hidden in (256, 1024):
        for batch in BATCHES:
            net = Net("GRU", hidden, batch)
            sessions = {"float": session(net.model())}
            sessions["onnxq"] = session(quantized(net, DynamicForm.INTEGER))
            sessions |= {n: session(write(net.model(), STEPS)) for n, write in VARIANTS.items()}
            ms, found = ratios(sessions, net)
            cells = " | ".join(f"{ratio:.2f}" for ratio in found.values())
            print(f"| {hidden} | {batch} | {ms:.3f} | {cells} |", flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("sizes", "forms"))
    parser.add_argument("--gains", action="store_true", help="write the table that planning reads")
    arguments = parser.parse_args()
    if arguments.what == "forms":
        print_forms()
    elif arguments.gains:
        print_gains()
    else:
        print_sizes()


if __name__ == "__main__":
    main()

"""Dynamic quantization in loops: LSTM cells in a Loop, and written out.

    python scripts/bench_loops.py

One thread, CPU time of that thread; variants take turns, a ratio is the median over the rounds of
float time / own time in the same round. `float again` is a second session of the float model. The
last columns are without ONNX Runtime's optimizations: what a runtime does that folds nothing.
What it printed is in scripts/bench_loops.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import numpy_helper, parser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import onnxq
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic, QConfigMapping, float16_dynamic_qconfig
from scripts._tables import head, line
from scripts._timing import one_thread, session
from scripts.bench_recurrent import STEPS, Net, ratios_of

if TYPE_CHECKING:
    from collections.abc import Sequence

INT8 = NarrowRangeObserver.with_args()
INT4 = NarrowRangeObserver.with_args(dtype="int4", quant_max=7)
FORMS = {
    "stored": QConfigDynamic(INT8, Precision.WEIGHT_ONLY),
    "half": float16_dynamic_qconfig,
    "integer": QConfigDynamic(INT8, Precision.DYNAMIC_INT8),
    "blocks": QConfigDynamic(INT8, Precision.WEIGHT_ONLY_GROUPWISE, 32),
    "blocks, 4 bits": QConfigDynamic(INT4, Precision.WEIGHT_ONLY_GROUPWISE, 32),
}
CELL = """
  p{i} = Gemm<transB = 1>(x{i}, w, wb)
  q{i} = Gemm<transB = 1>(h{i}, r, rb)
  s{i} = Add(p{i}, q{i})
  si{i}, sf{i}, sg{i}, so{i} = Split<axis = 1, num_outputs = 4>(s{i})
  gi{i} = Sigmoid(si{i}) gf{i} = Sigmoid(sf{i}) gg{i} = Tanh(sg{i}) go{i} = Sigmoid(so{i})
  fc{i} = Mul(gf{i}, c{i}) ig{i} = Mul(gi{i}, gg{i}) c{j} = Add(fc{i}, ig{i})
  t{i} = Tanh(c{j}) h{j} = Mul(go{i}, t{i})
"""
"""Step i of an LSTM cell as PyTorch exports it; j = i + 1."""
MEMORY = """
import sys, onnxruntime as ort
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
options = ort.SessionOptions()
options.intra_op_num_threads = 1
before = rss()
session = ort.InferenceSession(sys.argv[1], options)
print((rss() - before) / 2**20)
"""


def cells(net: Net, *, looped: bool) -> onnx.ModelProto:
    """An LSTM cell over STEPS steps; the last h."""
    hidden, batch = net.hidden, net.batch
    state = f"float[{batch},{hidden}]"
    if looped:
        text = f"""count = Constant<value = int64 {{{STEPS}}}>()
          y, last = Loop (count, , start, start) <body = b
            (int64 i, bool k, {state} h0, {state} c0) => (bool kk, {state} h1, {state} c1) {{
              x0 = Gather<axis = 0>(x, i) {CELL.format(i=0, j=1)} kk = Identity(k) }}>"""
    else:
        steps = [
            f"n{i} = Constant<value = int64 {{{i}}}>() x{i} = Gather<axis = 0>(x, n{i})"
            + CELL.format(i=i, j=i + 1)
            for i in range(STEPS)
        ]
        text = f"h0 = Identity(start) c0 = Identity(start) {''.join(steps)} y = Identity(h{STEPS})"
    header = '<ir_version: 10, opset_import: ["" : 21]>'
    made = parser.parse_model(
        f"{header} m (float[{STEPS},{batch},{hidden}] x) => ({state} y) {{ {text} }}"
    )
    random, rows = np.random.default_rng(0), 4 * hidden
    shapes = {"w": (rows, hidden), "r": (rows, hidden), "wb": (rows,), "rb": (rows,)}
    for name, shape in shapes.items():
        array = random.uniform(-1, 1, shape) / np.sqrt(hidden)
        made.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    start = np.zeros((batch, hidden), np.float32)
    made.graph.initializer.append(numpy_helper.from_array(start, "start"))
    return made


def plain_session(model: onnx.ModelProto | ir.Model) -> onnxruntime.InferenceSession:
    """Without optimizations."""
    options = one_thread()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return session(model, options)


def quantized(model: onnx.ModelProto, entry: QConfigDynamic) -> ir.Model:
    """With that entry for all."""
    return onnxq.quantize_dynamic(model, QConfigMapping().set_global(entry), target="auto")


def print_speed() -> None:
    """Cells in a Loop and written out."""
    last = ("stored", "half")
    plainly = [f"{name}, not optimized" for name in last]
    print(head("cells", "hidden", "batch", "float, ms", "float again", *FORMS, *plainly))
    for looped in (True, False):
        for hidden in (64, 256, 1024):
            for batch in (1, 8):
                net = Net("LSTM", hidden, batch)
                model = cells(net, looped=looped)
                made = {name: quantized(model, entry) for name, entry in FORMS.items()}
                sessions = {"float": session(model), "float again": session(model)}
                ms, found = ratios_of(sessions | {n: session(m) for n, m in made.items()}, net)
                plain = {"float": plain_session(model)}
                plain |= {name: plain_session(made[name]) for name in last}
                numbers: Sequence[float] = [*found.values(), *ratios_of(plain, net)[1].values()]
                kind = "Loop" if looped else "written out"
                row = [f"{ms:.3f}", *(f"{ratio:.2f}" for ratio in numbers)]
                print(line(kind, hidden, batch, *row), flush=True)


def everywhere(side: int) -> onnx.ModelProto:
    """One matrix that the main graph, both branches of an If and a Loop multiply by."""
    row = f"float[1,{side}]"
    made = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> m ({row} x, bool c) => ({row} y) {{
          count = Constant<value = int64 {{{STEPS}}}>()
          a = MatMul(x, w)
          b = If (c) <then_branch = t () => ({row} p) {{ p = MatMul(a, w) }},
                      else_branch = e () => ({row} q) {{ s = Tanh(a) q = MatMul(s, w) }}>
          y = Loop (count, , b) <body = l (int64 i, bool k, {row} h) => (bool kk, {row} g) {{
            kk = Identity(k) u = MatMul(h, w) g = Tanh(u) }}> }}"""
    )
    w = np.random.default_rng(0).standard_normal((side, side)) / np.sqrt(side)
    made.graph.initializer.append(numpy_helper.from_array(w.astype(np.float32), "w"))
    return made


def print_memory(folder: Path) -> None:
    """Memory that a session adds to the process when it is made."""
    print()
    print(head("one 2048 x 2048 weight, four graphs", "file, MB", "resident, MB"))
    model = everywhere(2048)
    made = {"float": ir.from_proto(model)}
    made |= {name: quantized(model, FORMS[name]) for name in ("stored", "half", "integer")}
    for name, one in made.items():
        path = folder / "model.onnx"
        ir.save(one, path)
        run = [sys.executable, "-c", MEMORY, str(path)]
        resident = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        print(line(name, f"{path.stat().st_size / 2**20:.1f}", f"{float(resident):.0f}"))


if __name__ == "__main__":
    import tempfile

    print_speed()
    with tempfile.TemporaryDirectory() as place:
        print_memory(Path(place))

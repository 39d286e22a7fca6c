"""A GRU (linear_before_reset 1) in integers, written in other ways; for benchmarks/recurrent.py."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from onnxq.core.arrays import Singles

    Nodes = list[onnx.NodeProto]

MICROSOFT = "com.microsoft"
FLOAT = TensorProto.FLOAT
node, info = helper.make_node, helper.make_tensor_value_info


def arrays_of(model: onnx.ModelProto) -> dict[str, Singles]:
    """The weights w, r and b."""
    return {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}


def codes(w: Singles) -> tuple[npt.NDArray[np.int8], Singles]:
    """int8 codes of (K, N), one scale per column."""
    scale = np.asarray(np.abs(w).max(axis=0) / 127, np.float32)
    return np.rint(w / scale).astype(np.int8), scale


def constants(model: onnx.ModelProto) -> dict[str, npt.NDArray[np.generic]]:
    """Initializers that the variants read."""
    given = arrays_of(model)
    wb, rb = np.split(given["b"][0], 2)
    found: dict[str, npt.NDArray[np.generic]] = {"wb": wb, "rb": rb, "rf": given["r"][0].T}
    for name in ("w", "r"):
        found[f"{name}q"], found[f"{name}s"] = codes(given[name][0].T)
    hidden = len(given["r"][0][0])
    batch = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    found["start"] = np.zeros((batch, hidden), np.float32)
    found |= {"sizes": np.array([2 * hidden, hidden]), "axis": np.array([1]), "first": np.array(0)}
    return found


def product(x: str, label: str, kind: str) -> Nodes:
    """The recurrent product and its bias as `<label>_h`."""
    if kind == "float":
        return [node("Gemm", [x, "rf", "rb"], [f"{label}_h"])]
    if kind == "DynamicQuantizeMatMul":
        return [node(kind, [x, "rq", "rs", "", "rb"], [f"{label}_h"], domain=MICROSOFT)]
    slots = [f"{label}_q", "rq", f"{label}_s", "rs", f"{label}_z", "", "rb"]
    return [
        node("DynamicQuantizeLinear", [x], [f"{label}_{suffix}" for suffix in "qsz"]),
        node("MatMulIntegerToFloat", slots, [f"{label}_h"], domain=MICROSOFT),
    ]


def cell(early: str, late: str, h: str, new: str, label: str, kind: str) -> Nodes:
    """One step."""
    v = [f"{label}_{i}" for i in range(10)]
    return [
        *product(h, label, kind),
        node("Split", [f"{label}_h", "sizes"], [v[0], v[1]], axis=-1),
        node("Add", [early, v[0]], [v[2]]),
        node("Sigmoid", [v[2]], [v[3]]),
        node("Split", [v[3]], [v[4], v[5]], axis=-1, num_outputs=2),
        node("Mul", [v[5], v[1]], [v[6]]),
        node("Add", [v[6], late], [v[7]]),
        node("Tanh", [v[7]], [v[8]]),
        node("Sub", [h, v[8]], [v[9]]),
        node("Mul", [v[4], v[9]], [f"{label}_m"]),
        node("Add", [v[8], f"{label}_m"], [new]),
    ]


def assembled(
    model: onnx.ModelProto, nodes: Nodes, more: Mapping[str, npt.NDArray[np.generic]]
) -> onnx.ModelProto:
    """The projection, these nodes that make `all` (T, N, H), and y."""
    before = [
        node("DynamicQuantizeMatMul", ["x", "wq", "ws", "", "wb"], ["p"], domain=MICROSOFT),
        node("Split", ["p", "sizes"], ["early", "late"], axis=-1),
    ]
    graph = helper.make_graph(
        [*before, *nodes, node("Unsqueeze", ["all", "axis"], ["y"])],
        "variant",
        model.graph.input,
        model.graph.output,
        [numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in more.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def scan(model: onnx.ModelProto, _steps: int, kind: str) -> onnx.ModelProto:
    """A Scan over the steps."""
    more = constants(model)
    batch, hidden = more["start"].shape
    body = helper.make_graph(
        [*cell("e", "l", "h", "new", "t", kind), node("Identity", ["new"], ["shown"])],
        "body",
        [info("h", FLOAT, [batch, hidden]), info("e", FLOAT, [batch, 2 * hidden]),
         info("l", FLOAT, [batch, hidden])],
        [info("new", FLOAT, [batch, hidden]), info("shown", FLOAT, [batch, hidden])],
    )  # fmt: skip
    slots = ["start", "early", "late"]
    made = node("Scan", slots, ["last", "all"], body=body, num_scan_inputs=2)
    return assembled(model, [made], more)


def loop(model: onnx.ModelProto, steps: int) -> onnx.ModelProto:
    """A Loop over the steps."""
    more = constants(model) | {"steps": np.array(steps)}
    shape = list(more["start"].shape)
    body = helper.make_graph(
        [
            node("Gather", ["early", "i"], ["e"]),
            node("Gather", ["late", "i"], ["l"]),
            *cell("e", "l", "h", "new", "t", "DynamicQuantizeMatMul"),
            node("Identity", ["new"], ["shown"]),
            node("Identity", ["going"], ["still"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []),
         info("h", FLOAT, shape)],
        [info("still", TensorProto.BOOL, []), info("new", FLOAT, shape),
         info("shown", FLOAT, shape)],
    )  # fmt: skip
    return assembled(
        model, [node("Loop", ["steps", "", "start"], ["last", "all"], body=body)], more
    )


def written_out(model: onnx.ModelProto, steps: int) -> onnx.ModelProto:
    """Every step on its own."""
    more = constants(model)
    more["start"] = more["start"][None]
    nodes: Nodes = []
    for name in ("early", "late"):
        parts = [f"{name}_{t}" for t in range(steps)]
        nodes.append(node("Split", [name], parts, axis=0, num_outputs=steps))
    h = "start"
    for t in range(steps):
        nodes += cell(f"early_{t}", f"late_{t}", h, f"h_{t}", f"t{t}", "DynamicQuantizeMatMul")
        h = f"h_{t}"
    nodes.append(node("Concat", [f"h_{t}" for t in range(steps)], ["all"], axis=0))
    return assembled(model, nodes, more)


def stored(model: onnx.ModelProto, _steps: int) -> onnx.ModelProto:
    """The float node on weights from DequantizeLinear, which ONNX Runtime runs every time."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    given = arrays_of(model)
    del changed.graph.initializer[:]
    nodes: Nodes = []
    arrays: dict[str, npt.NDArray[np.generic]] = {"b": given["b"]}
    for name in ("w", "r"):
        q, scale = codes(given[name][0].T)
        arrays |= {f"{name}q": q.T[None], f"{name}s": scale}
        nodes.append(node("DequantizeLinear", [f"{name}q", f"{name}s"], [name], axis=1))
    changed.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in arrays.items()
    )
    nodes += list(model.graph.node)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


VARIANTS: dict[str, Callable[[onnx.ModelProto, int], onnx.ModelProto]] = {
    "Scan, DynamicQuantizeMatMul": partial(scan, kind="DynamicQuantizeMatMul"),
    "Scan, MatMulIntegerToFloat": partial(scan, kind="MatMulIntegerToFloat"),
    "Scan, float": partial(scan, kind="float"),
    "Loop": loop,
    "written out": written_out,
    "DequantizeLinear": stored,
}

"""Small models whose tensors 8 bits cannot hold, though nothing in themselves tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnxq.core.arrays import Array, Singles

OPSET = 21
WIDTH, HIDDEN, TOKENS = 48, 96, 16
OUTLIERS = (3, 20, 41)
FRAME, HOP, SAMPLES = 64, 32, 1024


def model(
    nodes: list[onnx.NodeProto],
    weights: dict[str, Array],
    x: tuple[int, ...],
    y: str,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(w, np.float32), name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def feed_forwards(layers: int, outlier: float) -> onnx.ModelProto:
    """Post-norm layers n(x + W2 relu(W1 x)), some columns of W2 and entries of n's gain apart."""
    rng = np.random.default_rng(2)
    nodes, weights, x = [], {}, "x"
    for i in range(layers):
        down = rng.normal(size=(HIDDEN, WIDTH)) / HIDDEN**0.5
        channel_scale = np.ones(WIDTH)
        down[:, OUTLIERS] *= outlier
        channel_scale[list(OUTLIERS)] = min(1.0, 3 / outlier)
        weights[f"up{i}"] = rng.normal(size=(WIDTH, HIDDEN)) / WIDTH**0.5
        weights |= {f"down{i}": down, f"gain{i}": channel_scale, f"bias{i}": np.zeros(WIDTH)}
        nodes += [
            helper.make_node("MatMul", [x, f"up{i}"], [f"u{i}"], name=f"up_{i}"),
            helper.make_node("Relu", [f"u{i}"], [f"r{i}"], name=f"relu_{i}"),
            helper.make_node("MatMul", [f"r{i}", f"down{i}"], [f"d{i}"], name=f"down_{i}"),
            helper.make_node("Add", [x, f"d{i}"], [f"s{i}"], name=f"add_{i}"),
            helper.make_node(
                "LayerNormalization",
                [f"s{i}", f"gain{i}", f"bias{i}"],
                [f"n{i}"],
                name=f"norm_{i}",
            ),
        ]
        x = f"n{i}"
    return model(nodes, weights, (1, TOKENS, WIDTH), x)


def frequencies(highest: float) -> onnx.ModelProto:
    """Sines of projections (Fourier features), some `highest` wide, and a MatMul with them."""
    rng = np.random.default_rng(3)
    weights = {
        "project": rng.normal(size=(WIDTH, HIDDEN)) * highest / WIDTH**0.5,
        "mix": rng.normal(size=(HIDDEN, WIDTH)) / HIDDEN**0.5,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "project"], ["angle"], name="angles"),
        helper.make_node("Sin", ["angle"], ["wave"], name="sin"),
        helper.make_node("MatMul", ["wave", "mix"], ["y"], name="mix"),
    ]
    return model(nodes, weights, (1, TOKENS, WIDTH), "y")


def tokens(count: int) -> list[dict[str, Singles]]:
    rng = np.random.default_rng(4)
    shape = (1, TOKENS, WIDTH)
    return [{"x": np.asarray(rng.normal(size=shape), np.float32)} for _ in range(count)]


def spectral(*, logarithm: bool) -> onnx.ModelProto:
    """A short-time Fourier transform as a Conv, its powers, their logarithms or not, a Conv."""
    rng = np.random.default_rng(6)
    k, t = np.arange(FRAME // 2 + 1)[:, None], np.arange(FRAME)
    window = np.hanning(FRAME)
    kernels = np.concatenate([np.cos(2 * np.pi * k * t / FRAME), np.sin(2 * np.pi * k * t / FRAME)])
    bins = len(k)
    weights = {
        "kernels": (kernels * window)[:, None],
        "floor": np.array(1e-6),
        "w": rng.normal(size=(8, bins, 3)) / (3 * bins) ** 0.5,
        "w2": rng.normal(size=(8, 8, 3)) / 24**0.5,
    }
    halves = numpy_helper.from_array(np.array([bins, bins]), "halves")
    nodes = [
        helper.make_node("Conv", ["x", "kernels"], ["c"], name="stft", strides=[HOP]),
        helper.make_node("Split", ["c", "halves"], ["re", "im"], name="split", axis=1),
        helper.make_node("Mul", ["re", "re"], ["re2"], name="square_re"),
        helper.make_node("Mul", ["im", "im"], ["im2"], name="square_im"),
        helper.make_node("Add", ["re2", "im2"], ["p"], name="power"),
        helper.make_node("Add", ["p", "floor"], ["pf"], name="floored"),
        helper.make_node("Log", ["pf"], ["l"], name="log")
        if logarithm
        else helper.make_node("Identity", ["pf"], ["l"], name="log"),
        helper.make_node("Conv", ["l", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["y"], name="second"),
    ]
    made = model(nodes, weights, (1, 1, SAMPLES), "y")
    made.graph.initializer.append(halves)
    return made


def energies(op_type: str) -> onnx.ModelProto:
    """Logarithms of the energies of frames: ReduceSum or ReduceMean over squares of a transform."""
    made = spectral(logarithm=True)
    made.graph.initializer.append(numpy_helper.from_array(np.array([1]), "first_axis"))
    for x in list(made.graph.initializer):
        if x.name == "w":
            made.graph.initializer.remove(x)
    w = np.random.default_rng(6).normal(size=(8, 1, 3)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(w, "w"))
    nodes = [
        helper.make_node("Mul", ["c", "c"], ["c2"], name="squares"),
        helper.make_node(op_type, ["c2", "first_axis"], ["p"], name="energy"),
    ]
    gone = ("split", "square_re", "square_im", "power")
    order = [node for node in made.graph.node if node.name not in gone]
    del made.graph.node[:]
    made.graph.node.extend([order[0], *nodes, *order[1:]])
    return made


def norms() -> onnx.ModelProto:
    """Magnitudes of a spectrum as torch.norm of both halves gives them: Reshape, ReduceL2; Log."""
    made = spectral(logarithm=True)
    sizes = numpy_helper.from_array(np.array([0, 2, FRAME // 2 + 1, -1]), "sizes")
    made.graph.initializer.extend([sizes, numpy_helper.from_array(np.array([1]), "first_axis")])
    nodes = [
        helper.make_node("Reshape", ["c", "sizes"], ["stacked"], name="stack"),
        helper.make_node("ReduceL2", ["stacked", "first_axis"], ["p"], name="norm", keepdims=0),
    ]
    gone = ("split", "square_re", "square_im", "power")
    order = [node for node in made.graph.node if node.name not in gone]
    del made.graph.node[:]
    made.graph.node.extend([order[0], *nodes, *order[1:]])
    return made


def filter_bank() -> onnx.ModelProto:
    """Magnitudes of a spectrum, summed by a MatMul that reads a transposed copy of them; Log."""
    made = spectral(logarithm=True)
    bands, bins = 12, FRAME // 2 + 1
    rng = np.random.default_rng(9)
    for x in list(made.graph.initializer):
        if x.name == "w":
            made.graph.initializer.remove(x)
    weights = {
        "bank": np.abs(rng.normal(size=(bins, bands))) * (rng.random((bins, bands)) < 0.2),
        "w": rng.normal(size=(8, bands, 3)) / (3 * bands) ** 0.5,
    }
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(w, np.float32), name) for name, w in weights.items()
    )
    nodes = {node.name: node for node in made.graph.node}
    nodes["floored"].input[0] = "bands"
    between = [
        helper.make_node("Sqrt", ["p"], ["magnitude"], name="root"),
        helper.make_node("Transpose", ["magnitude"], ["t"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "bank"], ["sums"], name="bank_sums"),
        helper.make_node("Transpose", ["sums"], ["bands"], name="back", perm=[0, 2, 1]),
    ]
    order = list(made.graph.node)
    at = order.index(nodes["floored"])
    del made.graph.node[:]
    made.graph.node.extend([*order[:at], *between, *order[at:]])
    return made


def clipped_filter_bank() -> onnx.ModelProto:
    """The same with the floor as a bound, not as a summand."""
    made = filter_bank()
    floored = next(node for node in made.graph.node if node.name == "floored")
    floored.op_type = "Clip"
    return made


def filter_bank_on_the_left() -> onnx.ModelProto:
    """The same with the bank as the left factor, without copies that are transposed."""
    made = filter_bank()
    nodes = {node.name: node for node in made.graph.node}
    nodes["bank_sums"].input[:] = ["bank", "magnitude"]
    nodes["bank_sums"].output[0] = "bands"
    for name in ("turn", "back"):
        made.graph.node.remove(nodes[name])
    bank = next(x for x in made.graph.initializer if x.name == "bank")
    bank.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bank).T.copy(), "bank"))
    return made


def levelled(*, divides: bool) -> onnx.ModelProto:
    """Bands over a mean of each that goes round in a Scan, and a root: PCEN of Wang et al. 2017.

    Args:
        divides: by the mean; else times its power.
    """
    made = filter_bank()
    nodes = {node.name: node for node in made.graph.node}
    step = helper.make_graph(
        [
            helper.make_node("Sub", ["now", "before"], ["d"]),
            helper.make_node("Mul", ["d", "share"], ["part"]),
            helper.make_node("Add", ["before", "part"], ["after"]),
            helper.make_node("Identity", ["after"], ["mean"]),
        ],
        "smoothed",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("before", "now")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("after", "mean")],
    )
    weights = {"share": 0.1, "floor": 1e-3, "channel_scale": 0.98 if divides else -0.98}
    weights |= {"delta": 2.0, "half": 0.5, "root_of_delta": 2.0**0.5}
    inits = [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()]
    kept = [x for x in made.graph.initializer if x.name not in weights]
    del made.graph.initializer[:]
    made.graph.initializer.extend([*kept, *inits, numpy_helper.from_array(np.array(0), "first")])
    between = [
        helper.make_node("Transpose", ["sums"], ["frames"], name="frames", perm=[1, 0, 2]),
        helper.make_node("Gather", ["frames", "first"], ["begin"], name="begin"),
        helper.make_node(
            "Scan", ["begin", "frames"], ["end", "means"], "mean", body=step, num_scan_inputs=1
        ),
        helper.make_node("Transpose", ["means"], ["m"], name="turned", perm=[1, 0, 2]),
        helper.make_node("Add", ["m", "floor"], ["mf"], name="floored"),
        helper.make_node("Pow", ["mf", "channel_scale"], ["loud"], name="loudness"),
        helper.make_node("Div" if divides else "Mul", ["sums", "loud"], ["even"], name="levelled"),
        helper.make_node("Add", ["even", "delta"], ["raised"], name="raised"),
        helper.make_node("Pow", ["raised", "half"], ["roots"], name="compressed"),
        helper.make_node("Sub", ["roots", "root_of_delta"], ["features"], name="features"),
        helper.make_node("Transpose", ["features"], ["l"], name="back", perm=[0, 2, 1]),
    ]
    order = [n for n in made.graph.node if n.name not in ("floored", "log", "back")]
    at = order.index(nodes["bank_sums"]) + 1
    del made.graph.node[:]
    made.graph.node.extend([*order[:at], *between, *order[at:]])
    return made


def sounds(count: int) -> list[dict[str, Singles]]:
    """Tones that fade, with noise 50 dB below."""
    rng, t = np.random.default_rng(8), np.arange(SAMPLES) / 8000
    made: list[dict[str, Singles]] = []
    for _ in range(count):
        tones = [
            np.sin(2 * np.pi * f * t + f) * np.exp(-20 * t) / (1 + f / 300)
            for f in rng.uniform(80, 2000, 5)
        ]
        x = sum(tones) * rng.uniform(0.1, 0.5) + 1e-3 * rng.normal(size=SAMPLES)
        made.append({"x": np.asarray(x, np.float32)[None, None]})
    return made

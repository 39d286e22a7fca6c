"""Products of a decoder by the rows that they see at once: float, int8, and weights in blocks.

    python -m benchmarks prefill [--width 2048] [--rounds 30] [--write FILE]

One product of width x width, on one thread; the forms take turns in every round. Decoding has one
row; a prompt is a prefill of as many rows as it has tokens.
The lines that this printed are in benchmarks/results/prefill.md.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from pathlib import Path

import numpy as np
import onnx.helper
import onnx.numpy_helper

import onnxq
from onnxq.checking.check import Check
from scripts._tables import head, line, publish, versions
from scripts._timing import paired_ratio, session, taking_turns

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def product(width: int) -> onnx.ModelProto:
    """Y = X W, W random."""
    weight = np.random.default_rng(0).standard_normal((width, width), np.float32) / 45
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [info("x", onnx.TensorProto.FLOAT, ["N", width])],
        [info("y", onnx.TensorProto.FLOAT, ["N", width])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of verdicts: the inputs are noise
    source = product(arguments.width)
    blocks = {
        f"{bits} bits, level {level}": onnxq.quantize_weights(
            source, bits=bits, method="rtn", accuracy_level=level, check=Check.NONE
        )
        for bits, level in ((4, 4), (4, 0), (8, 4), (2, 4))
    }
    int8 = onnxq.quantize_dynamic(source, check=Check.NONE)
    forms = {"int8": session(int8), **{name: session(made) for name, made in blocks.items()}}
    floats = session(source)
    lines = [
        f"{versions('onnxruntime', 'numpy')}; one thread; {arguments.width} x "
        f"{arguments.width}; time over float, median and interval of 95%",
        "",
        head("rows", *forms, "fastest"),
    ]
    for rows in ROWS:
        x = {"x": np.random.default_rng(rows).standard_normal((rows, arguments.width), np.float32)}
        every = {"float": floats, **forms}
        runs = {name: functools.partial(each.run, None, x) for name, each in every.items()}
        times = taking_turns(runs, arguments.rounds)
        ratios = {name: paired_ratio(times[name], times["float"]) for name in forms}
        fastest = min(ratios, key=lambda name: ratios[name].median)
        lines.append(line(rows, *(str(ratio) for ratio in ratios.values()), fastest))
    publish(lines, arguments.write)


if __name__ == "__main__":
    main()

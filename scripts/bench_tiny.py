"""CPU time of whole processes that quantize a model of two nodes, where imports are most of it.

    python scripts/bench_tiny.py [--rounds 11]

Each row is a process of its own on one thread, from its start to its end; they take turns, and the
figures are medians over the rounds, of the ratios to quantize_static of ONNX Runtime too. Bytecode
is kept between processes, as where a package is installed. What it printed is in
scripts/bench_tiny.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._tables import head, line

THEIRS = "quantize_static"
QUANTIZE = "import onnxq; onnxq.quantize('tiny.onnx', 'tiny.npz'{}).save('ours.onnx')"
STATIC = """
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

class Reader(CalibrationDataReader):
    rows = iter([{"x": row[None]} for row in np.load("tiny.npz")["x"]])

    def get_next(self):
        return next(self.rows, None)

quantize_static("tiny.onnx", "theirs.onnx", Reader(), quant_format=QuantFormat.QDQ)
"""
CLI = "from onnxq.cli import main; main({!r})"
PROCESSES = {
    THEIRS: STATIC,
    "onnxq.quantize without verdict": QUANTIZE.format(", check=onnxq.Check.NONE"),
    "onnxq.quantize": QUANTIZE.format(""),
    "onnxq --version": CLI.format(["--version"]),
    "onnxq --help": CLI.format(["--help"]),
    "import onnx_ir": "import onnx_ir",
    "import sympy": "import sympy",
    "import onnx, onnxruntime, numpy": "import onnx, onnxruntime, numpy",
}


def tiny_model() -> onnx.ModelProto:
    """Conv and Relu."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3], pads=[1] * 4),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4, 8, 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def cpu_seconds(code: str, folder: Path) -> float:
    """CPU time of a Python that runs the code in that folder."""
    root = Path(__file__).resolve().parent.parent
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(root),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(tiny_model(), folder / "tiny.onnx")
        x = np.random.default_rng(1).standard_normal((8, 3, 8, 8)).astype(np.float32)
        np.savez(folder / "tiny.npz", x=x)
        for code in PROCESSES.values():  # bytecode and the system's cache of files
            cpu_seconds(code, folder)
        times = np.array(
            [[cpu_seconds(code, folder) for code in PROCESSES.values()] for _ in range(rounds)]
        )
    theirs = times[:, [list(PROCESSES).index(THEIRS)]]
    print(head("process", "CPU s", f"times {THEIRS}"))
    for title, s, ratio in zip(
        PROCESSES, np.median(times, axis=0), np.median(times / theirs, axis=0), strict=True
    ):
        print(line(title, f"{s:.2f}", f"{ratio:.2f}"))


if __name__ == "__main__":
    main()

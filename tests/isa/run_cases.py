"""Runs a folder of models on the machine that this Python runs on; needs NumPy and ONNX Runtime.

    python run_cases.py CASES RESULTS

CASES has NAME.onnx and NAME.npz, its inputs by name. RESULTS gets NAME.npz, its outputs as arr_0,
arr_1 ..., or NAME.error, what ONNX Runtime said. Where CASES has NAME.graph, it gets NAME.onnx too,
the graph that ONNX Runtime runs there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

ERRORS_ONLY = 3


def main(cases: Path, results: Path) -> None:
    """Runs every case, one after the other."""
    for model in sorted(cases.glob("*.onnx")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what a case fails by is in its file
        if model.with_suffix(".graph").exists():
            options.optimized_model_filepath = str(results / model.name)
        with np.load(model.with_suffix(".npz")) as file:
            feeds = dict(file)
        try:
            session = onnxruntime.InferenceSession(str(model), options)
            outputs = session.run(None, feeds)
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            (results / f"{model.stem}.error").write_text(str(error))
        else:
            np.savez(results / f"{model.stem}.npz", *outputs)


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(ERRORS_ONLY)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

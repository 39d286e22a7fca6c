"""Files of onnxq on OpenVINO's execution provider, which takes its CPU device.

    scripts/openvino                       # makes the files, and measures them in both environments

Float models, and `onnxq.quantize` for "portable" and "x86-vnni", without PTQ algorithms and without
a repair, which would be by this machine's default provider. Nodes: of the quantized file that
OpenVINO takes, of all that run. Time: CPU time over that of float on the same provider, one thread,
one image, in turns: median and its interval of 95%. Beside default: time on OpenVINO over the
file's on the default CPU provider, medians of the two environments. dB: SQNR of the output against
float's, on OpenVINO and on the default provider.

The wheel onnxruntime-openvino stands in an environment of its own, .cache/openvino, since it takes
the place of onnxruntime. The table that this printed is in scripts/openvino.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # models/ and scripts/ are no installed packages

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
TARGETS = ("portable", "x86-vnni")
RUNS, IMAGES = 30, 64


def write(folder: Path) -> None:
    """Float models and their quantized files, and the images that they are run on."""
    import torch  # needed for exporting only

    import onnxq
    from models.cifar10 import load_sample
    from onnxq.pytorch import export, load_module
    from onnxq.qconfig import default_qconfig_mapping
    from scripts._models import float_models

    images = load_sample("calibration")[0]
    np.save(folder / "images.npy", load_sample("test")[0][:IMAGES])
    names = [model.name for model in float_models(folder, images)]
    module = load_module("models.transformer:transformer", ROOT / "models/transformer.safetensors")
    export(module, (torch.from_numpy(images[:2]),), folder / "transformer.onnx")
    for name in (*names, "transformer"):
        for target in TARGETS:
            made = onnxq.quantize(
                folder / f"{name}.onnx",
                images,
                qconfig=default_qconfig_mapping().set_improve(()),
                target=target,
                check=onnxq.Check(repair=None),
            )
            made.save(folder / f"{name}.{target}.onnx")


def measure(folder: Path, provider: str) -> dict[str, Any]:
    """File -> what was measured of it on the provider."""
    import onnxq

    images, found = np.load(folder / "images.npy"), {}
    for path in sorted(folder.glob("*.*.onnx")):
        name = path.name.split(".")[0]
        source = folder / f"{name}.onnx"
        timed = onnxq.bench(source, path, images[:1], runs=RUNS, provider=provider)
        beside = onnxq.verify(source, path, images, provider=provider)
        found[path.name] = {
            "quantized_ms": timed.quantized_ms,
            "time": [1 / x for x in (timed.speedup, *reversed(timed.speed_range))],
            "nodes": dict(timed.execution.providers),
            "sqnr_db": min(output.sqnr_db for output in beside.outputs),
        }
    return found


def page(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Markdown: a row per file."""
    from scripts._tables import head, line

    lines = [head("file", "nodes", "time", "beside default", "dB", "dB: default")]
    for name, one in there.items():
        every = sum(one["nodes"].values())
        ratio = one["quantized_ms"] / here[name]["quantized_ms"]
        middle, low, high = one["time"]
        lines.append(
            line(
                name.removesuffix(".onnx"),
                f"{one['nodes'].get(OPENVINO, 0)} of {every}",
                f"{middle:.2f} ({low:.2f}..{high:.2f})",
                f"{ratio:.2f}",
                f"{one['sqnr_db']:.1f}",
                f"{here[name]['sqnr_db']:.1f}",
            )
        )
    return lines


def main() -> int:
    """Prints the table; with a folder, measures its files here and prints JSON."""
    if len(sys.argv) > 2:  # in the other environment
        print(json.dumps(measure(Path(sys.argv[2]), OPENVINO)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        command = [sys.argv[1], __file__, "there", folder]
        there = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print("\n".join(page(measure(Path(folder), CPU), there)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

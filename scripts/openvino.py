"""Files of onnxq, and of NNCF, on OpenVINO's execution provider, which takes its CPU device.

    scripts/openvino                       # makes the files, and measures them in both environments

Float models: those of the repository, a detector out of a package, an encoder with drawn weights.
`onnxq.quantize` for "portable" and "x86-vnni", without PTQ algorithms and without a repair, which
would be by this machine's default provider; and `nncf.quantize`, which is for OpenVINO, on the same
samples. Nodes: of the quantized file that OpenVINO takes, of all that run. Time: CPU time over that
of float on the same provider, one thread, one sample, in turns: median and its interval of 95%.
Beside default: time on OpenVINO over the file's on the default CPU provider, medians of the two
environments. dB: SQNR of the worst output against float's, on OpenVINO and on the default provider.

The wheels onnxruntime-openvino and nncf stand in an environment of their own, .cache/openvino,
since the first takes the place of onnxruntime. The table that this printed is in
scripts/openvino.md.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # models/ and scripts/ are no installed packages, and this is no openvino

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.core.arrays import Array

    Samples = Mapping[str, Array]

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
TARGETS = ("portable", "x86-vnni")
RUNS, IMAGES, PAGES = 30, 64, 16
DETECTOR = "nudenet 320n"


def subjects(folder: Path) -> Iterator[tuple[str, Samples, Samples]]:
    """(name, samples to calibrate on, others); NAME.onnx lies in the folder then."""
    import torch  # needed for exporting only

    from models.cifar10 import load_sample
    from onnxq.pytorch import export, load_module
    from scripts._architectures import Size
    from scripts._corpus.packages import MODELS
    from scripts._defaults import SUBJECTS
    from scripts._models import float_models

    images, others = (load_sample(split)[0] for split in ("calibration", "test"))
    names = [model.name for model in float_models(folder, images)]
    module = load_module("models.transformer:transformer", ROOT / "models/transformer.safetensors")
    export(module, (torch.from_numpy(images[:2]),), folder / "transformer.onnx")
    for name in (*names, "transformer"):
        yield name, {"image": images}, {"image": others[:IMAGES]}
    model = next(each for each in MODELS if each.name == DETECTOR)
    (folder / "yolov8n.onnx").write_bytes(model.path.read_bytes())
    yield "yolov8n", joined(model.batches(PAGES, seed=0)), joined(model.batches(PAGES, seed=1))
    case = SUBJECTS["bert_block"].make(Size.REAL, folder)
    case.model.rename(folder / "bert_block.onnx")
    yield "bert_block", joined(case.calibration), joined(case.test)


def joined(batches: list[dict[str, Array]]) -> Samples:
    """One batch of all."""
    return {name: np.concatenate([each[name] for each in batches]) for name in batches[0]}


def write(folder: Path) -> None:
    """Float models and their quantized files, with what they are calibrated and run on."""
    import onnxq
    from onnxq.qconfig import default_qconfig_mapping

    for name, samples, others in subjects(folder):
        np.savez(folder / f"{name}.calibration.npz", allow_pickle=False, **samples)
        np.savez(folder / f"{name}.test.npz", allow_pickle=False, **others)
        for target in TARGETS:
            made = onnxq.quantize(
                folder / f"{name}.onnx",
                samples,
                qconfig=default_qconfig_mapping().set_improve(()),
                target=target,
                check=onnxq.Check(repair=None),
            )
            made.save(folder / f"{name}.{target}.onnx")


def write_nncf(folder: Path) -> None:
    """Writes what NNCF makes of the float models, in the environment that has it."""
    import onnx

    nncf: Any = importlib.import_module("nncf")
    for path in sorted(folder.glob("*.calibration.npz")):
        name, samples = path.name.split(".")[0], dict(np.load(path))
        count = len(next(iter(samples.values())))
        rows = [{key: x[i : i + 1] for key, x in samples.items()} for i in range(count)]
        model = onnx.load(folder / f"{name}.onnx")
        kind = None if "yolo" in name or "net" in name else nncf.ModelType.TRANSFORMER
        made = nncf.quantize(model, nncf.Dataset(rows), model_type=kind, subset_size=count)
        onnx.save(made, folder / f"{name}.nncf.onnx")


def measure(folder: Path, provider: str) -> dict[str, Any]:
    """File -> what was measured of it on the provider, where it runs there."""
    import onnxq
    from onnxq.errors import OnnxqError

    found = {}
    for path in sorted(folder.glob("*.*.onnx")):
        name = path.name.split(".")[0]
        source, test = folder / f"{name}.onnx", dict(np.load(folder / f"{name}.test.npz"))
        one = {key: x[:1] for key, x in test.items()}
        try:
            timed = onnxq.bench(source, path, [one], runs=RUNS, provider=provider)
            beside = onnxq.verify(source, path, test, provider=provider)
        except OnnxqError as error:
            print(f"{path.name} on {provider}: {error}", file=sys.stderr)
            continue
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
        own = here.get(name)
        middle, low, high = one["time"]
        lines.append(
            line(
                name.removesuffix(".onnx"),
                f"{one['nodes'].get(OPENVINO, 0)} of {every}",
                f"{middle:.2f} ({low:.2f}..{high:.2f})",
                f"{one['quantized_ms'] / own['quantized_ms']:.2f}" if own else "-",
                f"{one['sqnr_db']:.1f}",
                f"{own['sqnr_db']:.1f}" if own else "-",
            )
        )
    return lines


def main() -> int:
    """Prints the table; with a folder, writes NNCF's files, measures all there and prints JSON."""
    if len(sys.argv) > 2:  # in the other environment
        write_nncf(Path(sys.argv[2]))
        print(json.dumps(measure(Path(sys.argv[2]), OPENVINO)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        command = [sys.argv[1], __file__, "there", folder]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        there = json.loads(said.splitlines()[-1])  # NNCF says something ahead of it
        print("\n".join(page(measure(Path(folder), CPU), there)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

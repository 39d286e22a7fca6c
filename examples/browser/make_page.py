"""Writes a folder that `python -m http.server` can serve: the page, the model, images, the runtime.

    npm ci --prefix examples/browser
    python examples/browser/make_page.py build/browser
    python -m http.server --directory build/browser

The model is ResNet-20 of models/, quantized for browsers. Logits that the reference kernels compute
of it lie beside the images: the page says whether it finds the same, bit for bit. (ONNX Runtime's
own may differ here: x86 without VNNI saturates sums that WebAssembly adds exactly.)
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is no installed package

import onnxq
from models.cifar10 import load_sample
from onnxq.pytorch import load_module
from onnxq.qconfig import Choice, default_qconfig_mapping

HERE = Path(__file__).resolve().parent
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
PAGE = ("index.html", "classify.mjs")
IMAGES = 100


def make_page(folder: Path, modules: Path, images: int = IMAGES) -> None:
    """Writes the files.

    Args:
        folder: of the page; made if it is not there.
        modules: the node_modules that holds onnxruntime-web.
        images: how many of the test images the page has.
    """
    runtime = modules / "onnxruntime-web" / "dist"
    if not runtime.is_dir():
        sys.exit(f"{runtime} is not there; run `npm ci --prefix {HERE}`")
    folder.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME:
        shutil.copy(runtime / name, folder)
    for name in PAGE:
        shutil.copy(HERE / name, folder)
    calibration = load_sample("calibration")[0]
    x, labels = (array[:images] for array in load_sample("test"))
    weights = HERE.parents[1] / "models" / "resnet20.safetensors"
    module = load_module("models.resnet:resnet20", weights)
    source = onnxq.export(module, (torch.from_numpy(calibration[:2]),))
    # float sums differ between machines in their last bits; those of integers do not
    every = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    model = onnxq.quantize(source, {"image": calibration}, qconfig=every, target="wasm")
    onnxq.save(model, folder / "model.int8.onnx")
    (logits,) = onnxq.reference.evaluator(model).run(None, {"image": x})
    for name, array in (("images.f32", x), ("labels.u8", labels), ("logits.f32", logits)):
        np.asarray(array, labels.dtype if name == "labels.u8" else np.float32).tofile(folder / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The folder of a page that runs an int8 model.")
    parser.add_argument("folder", type=Path, help="to write")
    parser.add_argument("--modules", type=Path, default=HERE / "node_modules", help="of npm")
    arguments = parser.parse_args()
    make_page(arguments.folder, arguments.modules)

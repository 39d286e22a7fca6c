"""SQNR of models with group-wise weights: onnxq's methods beside those of ONNX Runtime, one run.

    python -m benchmarks weights --only decoder --only ViT
    python -m benchmarks weights --only "sentence encoder"   # random weights, some 10 minutes
    python -m benchmarks weights --also MiniLM=model.onnx,calibration.npz,test.npz

All read the same float file, and quantize the weights of its MatMuls in groups of 32. ONNX
Runtime's quantizers take no Gemm, so that onnxq leaves Gemms in float here, too. Scales are
float32; MatMuls are at accuracy level 4 where ONNX Runtime's writer lets it be set. SQNR is of all
outputs, on samples that no method saw. "MB": of the file, embeddings included. ONNX Runtime's HQQ
stores its zero points as float32, as our scheme real does: 6 bits per weight where others have 5.1.
Calibration samples are the same for both GPTQs.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import onnx
import torch
from safetensors.torch import load_file

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from models.decoder import decoder
from onnxq.graph.io import save
from onnxq.pytorch import load_module
from scripts._architectures import Size
from scripts._defaults.encoders import sentence_encoder
from scripts._models import ROOT, evaluation_data
from scripts._tables import sqnr_db
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    Batch = Mapping[str, npt.NDArray[np.generic]]

WEIGHTS = Table(
    "ways",
    {
        **{"model": "", "weights": "", "SQNR of outputs, dB": ".2f", "bits per byte": ".4f"},
        **{"MB": ".2f", "CPU s": ".0f"},
    },
    keys=2,
)
GROUP_SIZE = 32
WINDOW, WINDOWS = 256, 48
"""Bytes of a window of text; windows to calibrate on, and as many to test on."""
IMAGES = 32
"""Images of a batch."""
SHOWN = 90
"""Characters of an error."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A float model.

    Attributes:
        name: in the table.
        model: its file.
        calibration: batches that methods see.
        test: batches that none sees.
        bytes_of: input whose bytes the first output predicts, one step ahead; empty: none.
    """

    name: str
    model: Path
    calibration: Sequence[Batch]
    test: Sequence[Batch]
    bytes_of: str = ""

    @property
    def beside(self) -> list[str]:
        """Names of its Gemms."""
        graph = onnx.load(self.model, load_external_data=False).graph
        return [node.name for node in graph.node if node.op_type == "Gemm"]


class Reader:
    """Batches as ONNX Runtime's quantizer reads them."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def get_next(self) -> Batch | None:
        """None: there are no more; its quantizers iterate."""
        return None


def ours(subject: Subject, out: Path, *, bits: int, method: str, scheme: str = "affine") -> None:
    """Writes onnxq's file."""
    samples = subject.calibration if method == "gptq" else None
    made = onnxq.quantize_weights(
        subject.model,
        samples,
        bits=bits,
        group_size=GROUP_SIZE,
        scheme=scheme,
        method=method,
        exclude=subject.beside,
        check=onnxq.Check.NONE,
    )
    save(made, out)


def integer(subject: Subject, out: Path) -> None:
    """Writes onnxq's int8 file, activations quantized at run time."""
    made = onnxq.quantize_dynamic(subject.model, objective="size", check=onnxq.Check.NONE)
    save(made, out)


def theirs(subject: Subject, out: Path, *, bits: int, method: str, symmetric: bool) -> None:
    """Writes ONNX Runtime's file."""
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    common = {"block_size": GROUP_SIZE, "bits": bits}
    configs: dict[str, Callable[[], nbits.WeightOnlyQuantConfig]] = {
        "default": partial(
            nbits.DefaultWeightOnlyQuantConfig,
            is_symmetric=symmetric,
            accuracy_level=4,
            **common,
        ),
        "k_quant": nbits.KQuantWeightOnlyQuantConfig,
        "HQQ": partial(nbits.HQQWeightOnlyQuantConfig, **common),
        "GPTQ": partial(
            nbits.GPTQWeightOnlyQuantConfig, Reader(subject.calibration), actorder=False, mse=False
        ),
        "GPTQ, mse, actorder": partial(
            nbits.GPTQWeightOnlyQuantConfig, Reader(subject.calibration), actorder=True, mse=True
        ),
    }
    quantizer = nbits.MatMulNBitsQuantizer(
        onnx.load(subject.model),
        bits=bits,
        block_size=GROUP_SIZE,
        is_symmetric=symmetric,
        accuracy_level=4,
        algo_config=configs[method](),
    )
    quantizer.process()
    onnx.save(quantizer.model.model, out)


WAYS: dict[str, Callable[[Subject, Path], None]] = {
    "onnxq int8, dynamic": integer,
    "onnxq 8 bits, rtn": partial(ours, bits=8, method="rtn"),
    "onnxq 4 bits, rtn": partial(ours, bits=4, method="rtn"),
    "onnxq 4 bits, rtn, symmetric": partial(ours, bits=4, method="rtn", scheme="symmetric"),
    "onnxq 4 bits, hqq": partial(ours, bits=4, method="hqq"),
    "onnxq 4 bits, hqq, real": partial(ours, bits=4, method="hqq", scheme="real"),
    "onnxq 4 bits, gptq": partial(ours, bits=4, method="gptq"),
    "onnxq 4 bits, gptq, symmetric": partial(ours, bits=4, method="gptq", scheme="symmetric"),
    "ORT 4 bits, default": partial(theirs, bits=4, method="default", symmetric=False),
    "ORT 4 bits, default, symmetric": partial(theirs, bits=4, method="default", symmetric=True),
    "ORT 4 bits, k_quant": partial(theirs, bits=4, method="k_quant", symmetric=False),
    "ORT 4 bits, HQQ": partial(theirs, bits=4, method="HQQ", symmetric=False),
    "ORT 4 bits, GPTQ": partial(theirs, bits=4, method="GPTQ", symmetric=False),
    "ORT 4 bits, GPTQ, mse, actorder": partial(
        theirs, bits=4, method="GPTQ, mse, actorder", symmetric=False
    ),
    "onnxq 2 bits, rtn": partial(ours, bits=2, method="rtn"),
    "onnxq 2 bits, hqq": partial(ours, bits=2, method="hqq"),
    "onnxq 2 bits, hqq, real": partial(ours, bits=2, method="hqq", scheme="real"),
    "onnxq 2 bits, gptq": partial(ours, bits=2, method="gptq"),
    "ORT 2 bits, default": partial(theirs, bits=2, method="default", symmetric=False),
    "ORT 2 bits, HQQ": partial(theirs, bits=2, method="HQQ", symmetric=False),
}


def subjects(folder: Path) -> dict[str, Callable[[], Subject]]:
    """Name -> what makes the model and its samples."""
    return {
        "decoder": partial(_decoder, folder),
        "ViT": partial(_vit, folder),
        "sentence encoder": partial(_encoder, folder),
    }


def _decoder(folder: Path) -> Subject:
    module = decoder()
    stored = load_file(ROOT / "models/decoder.safetensors")
    module.load_state_dict({name: w.float() for name, w in stored.items()})
    path = folder / "decoder.onnx"
    parts: list[list[Batch]] = []
    for text in ("persuasion.txt", "northanger_abbey.txt"):  # trained on; held out
        data = np.frombuffer((ROOT / "models" / text).read_bytes(), np.uint8).astype(np.int64)
        starts = np.linspace(0, len(data) - WINDOW, WINDOWS, dtype=np.int64)
        rows = np.stack([data[start : start + WINDOW] for start in starts])
        parts.append([{"input_ids": rows[i : i + 8]} for i in range(0, WINDOWS, 8)])
    example = {"input_ids": torch.from_numpy(parts[0][0]["input_ids"])}
    onnxq.export(module.eval(), example, path)
    return Subject("decoder", path, parts[0], parts[1], "input_ids")


def _encoder(folder: Path) -> Subject:
    case = sentence_encoder(Size.REAL, folder)
    return Subject("sentence encoder", case.model, case.calibration, case.test)


def _vit(folder: Path) -> Subject:
    calibration, images, _ = evaluation_data(None)
    path = folder / "vit.onnx"
    module = load_module("models.transformer:transformer", ROOT / "models/transformer.safetensors")
    onnxq.export(module, {"image": torch.from_numpy(calibration[:2])}, path)
    cut: list[list[Batch]] = [
        [{"image": part[i : i + IMAGES]} for i in range(0, len(part), IMAGES)]
        for part in (calibration, images[: 4 * IMAGES])
    ]
    return Subject("ViT", path, cut[0], cut[1])


def _also(text: str) -> Subject:
    """A subject of the user's files."""
    name, files = text.split("=", 1)
    model, *samples = map(Path, files.split(","))
    parts: list[list[Batch]] = []
    for file in samples:
        with np.load(file) as arrays:
            whole = dict(arrays)
        count = len(next(iter(whole.values())))
        parts.append([{k: x[i : i + 4] for k, x in whole.items()} for i in range(0, count, 4)])
    return Subject(name, Path(model), parts[0], parts[1])


def outputs(model: Path, batches: Sequence[Batch]) -> npt.NDArray[np.float64]:
    """All outputs of all batches, one after the other."""
    opened = session(model)
    found = [np.ravel(y) for batch in batches for y in opened.run(None, dict(batch))]
    return np.concatenate(found).astype(np.float64)


def bits_per_byte(subject: Subject, found: npt.NDArray[np.float64]) -> float | str:
    """Mean of -log2 of the probability of each byte but the first of a window; or no text."""
    if not subject.bytes_of:
        return ""
    ids = np.concatenate([batch[subject.bytes_of] for batch in subject.test])
    logits = found.reshape(*ids.shape, -1)[:, :-1]
    shifted = logits - logits.max(-1, keepdims=True)
    spread = np.log(np.exp(shifted).sum(-1))
    picked = np.take_along_axis(shifted, ids[:, 1:, np.newaxis], -1)[..., 0]
    return float((spread - picked).mean() / np.log(2))


def rows(subject: Subject, folder: Path) -> Iterator[Row]:
    """Every way of a subject, as it is measured."""
    wanted = outputs(subject.model, subject.test)
    megabytes = subject.model.stat().st_size / 1e6
    yield WEIGHTS.row(subject.name, "float", "", bits_per_byte(subject, wanted), megabytes, "")
    for name, write in WAYS.items():
        out = folder / "quantized.onnx"
        begun_s = time.process_time()
        try:
            write(subject, out)
            spent_s = time.process_time() - begun_s
            got = outputs(out, subject.test)
        except Exception as error:  # whatever theirs raises is quoted
            text = f"{type(error).__name__}: {error}"[:SHOWN]
            yield WEIGHTS.row(subject.name, name, text, "", "", "")
            continue
        cells = (sqnr_db(wanted, got), bits_per_byte(subject, got), out.stat().st_size / 1e6)
        yield WEIGHTS.row(subject.name, name, *cells, spent_s)


@benchmark(WEIGHTS, needs=("torch",))
@click.option("--only", multiple=True, help="subjects; default: all")
@click.option("--also", multiple=True, metavar="NAME=MODEL,CAL,TEST", help="files of your own")
def measure(only: Sequence[str], also: Sequence[str]) -> Iterator[Row]:
    """The ways of each subject."""
    with tempfile.TemporaryDirectory() as folder:
        found = subjects(Path(folder))
        found |= {text.split("=")[0]: partial(_also, text) for text in also}
        for name, make in found.items():
            if not only or name in only:
                yield from rows(make(), Path(folder))

"""Folders as model hubs lay them out: a model in each precision that clients want, run and judged.

    config.json, tokenizer.json ...        as they were
    onnx/model.onnx                        fp32
    onnx/model_fp16.onnx, onnx/model_quantized.onnx, onnx/model_q4.onnx ...
    onnx/model_fp16.onnx_data              weights, where they do not fit into the file

transformers.js finds a file by its dtype, optimum by its name.
"""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxq.checking.check import Check, Repair
from onnxq.checking.validation import refusal
from onnxq.core.atomic import as_output_error, temporary
from onnxq.core.regular import why_no_file
from onnxq.core.saved import UNREADABLE
from onnxq.errors import (
    CalibrationError,
    ModelError,
    OnnxqError,
    OutputError,
    QConfigError,
    VerificationError,
    nearest,
)
from onnxq.graph.annotations import Annotations
from onnxq.graph.checks import check_quantizable
from onnxq.graph.given_file import given_size
from onnxq.graph.io import load, size_bytes
from onnxq.graph.saving import EXTERNAL_BYTES, data_files, locations, save
from onnxq.hub.variants import DEFAULT, VARIANTS, Part, Variant
from onnxq.page.card import card_of
from onnxq.quantized.verdict import InputSource, Verdict
from onnxq.samples import Samples, input_specs, open_samples
from onnxq.samples.inputs import Batch
from onnxq.samples.made_up import likely_batch
from onnxq.targets import Target

FLOOR_DB = 10.0
"""SQNR below which a variant is left out; onnxq.quantized.output_verdict.LOW_SQNR_DB says why."""
CONFIG, FOLDER, MODEL = "config.json", "onnx", "model"
COPIED = frozenset([".bpe", ".jinja", ".json", ".md", ".model", ".spm", ".tiktoken", ".txt"])
"""Endings of the files beside a model: configuration, tokenizer, processor, README."""
NOT_COPIED = ("index.json", "quantize_config.json", "ort_config.json", "genai_config.json")
"""Endings of files that speak of other weights or other files."""
OTHER_SUFFIXES = ("_uint8", "_bnb4", "_q8f16", "_uint8f16", "_q2", "_q2f16", "_q1", "_q1f16")
JS, PAST, BATCH = "transformers.js_config", "past_key_values", "batch_size"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a variant.

    Attributes:
        variant: "fp32", "q8" ...
        file: its name in the folder.
        size_bytes: external data included; 0: it was left out.
        ratio: of its size to the float model's; 0: it was left out.
        verdict: beside the float model; None of the model as it is, and where none could be made.
        why: reason for which the variant is left out; empty: it is there.
    """

    variant: str
    file: str
    size_bytes: int = 0
    ratio: float = 0.0
    verdict: Verdict | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class HubFolder:
    """A folder that was written.

    Attributes:
        path: of the folder.
        files: of each variant, those that were left out as well.
    """

    path: Path
    files: tuple[HubFile, ...]

    @property
    def left_out(self) -> tuple[HubFile, ...]:
        """Files of variants that are not there, each with its reason."""
        return tuple(file for file in self.files if file.why)

    _repr_html_ = card_of


def hub_folder(
    model: str | Path,
    folder: str | Path,
    samples: object = None,
    *,
    variants: Sequence[str] = DEFAULT,
    files: str | Path | None = None,
    min_sqnr_db: float = FLOOR_DB,
    target: str | Target | None = None,
    inline_bytes: int | None = None,
) -> HubFolder:
    """Makes a folder that transformers.js and optimum load: a model in several precisions.

    Each is run beside the float model, and opened from its file. One that cannot be made, or
    falls below the floor, is left out, and the result says why. The folder is written as a whole.

    Args:
        model: float ONNX file; or a folder with ONNX files, or with PyTorch's weights, and
            config.json, as save_pretrained, optimum and a hub have it.
        folder: to make; it must not be there.
        samples: to calibrate on, which makes 8 bits static, and to judge on; of a model of one
            file. None: 8 bits are dynamic, and made-up inputs are run.
        variants: of "fp32", "fp16", "q8" (model_quantized.onnx), "int8", "q4", "q4f16".
        files: folder with config.json and the tokenizer's files; None: beside the model.
        min_sqnr_db: floor of every output, in dB.
        target: machine that integers are for; None: `targets.get_default()`.
        inline_bytes: most weights in a file itself, as of `onnxq.save`; None: 1.9 GB.
    Raises:
        ModelError: the model cannot be read, or ONNX Runtime does not run it.
        QConfigError: a variant is not known, there is no config.json, or there are samples and
            several ONNX files.
        CalibrationError: unusable samples, or none where no inputs can be made up.
        UnsupportedError: PyTorch's weights of an architecture that is not exported here.
        VerificationError: no variant could be made.
        OutputError: the folder is there already, or cannot be written.
    """
    wanted, target_folder = _named(variants), Path(folder).absolute()
    _check_free(target_folder)
    with temporary(target_folder) as part_folder:
        with as_output_error(target_folder):
            (part_folder / FOLDER).mkdir(parents=True)
        place, files_found = _found(Path(model), part_folder)
        stems = [file.stem for file in files_found] if len(files_found) > 1 else [MODEL]
        loaded = (_with_named_batch(load(file)) for file in files_found)
        models = dict(zip(stems, loaded, strict=True))
        for each in models.values():
            check_quantizable(each)
        beside = _beside(place if files is None else Path(files))
        config = _read_config(beside[CONFIG])
        if samples is not None and len(models) > 1:
            raise QConfigError(
                f"samples are for a model of one file; '{model}' has {', '.join(models)}. Give one "
                "of these."
            )
        given = None if samples is None else Samples.of(samples)
        parts = [_part(*each, given, config, min_sqnr_db, target) for each in models.items()]
        made: list[HubFile] = []
        for variant in wanted:
            made += _written(variant, parts, part_folder / FOLDER, min_sqnr_db, inline_bytes)
        if all(file.why for file in made):
            raise VerificationError("; ".join(f"{file.variant}: {file.why}" for file in made))
        with as_output_error(target_folder):
            for name, path in beside.items():
                shutil.copyfile(path, part_folder / name)
            text = json.dumps(_with_data(config, part_folder), indent=2, ensure_ascii=False)
            (part_folder / CONFIG).write_text(text + "\n", "utf-8")
            _check_free(target_folder)
            part_folder.rename(target_folder)
    return HubFolder(target_folder, tuple(made))


def _named(names: Sequence[str]) -> list[Variant]:
    known = {variant.name: variant for variant in VARIANTS}
    for name in names:
        if name not in known:
            raise QConfigError(
                f"variants: '{name}' is not one of {', '.join(known)}.{nearest(name, known)}"
            )
    if isinstance(names, str) or not names:
        raise QConfigError(f"variants: got {names!r}; wanted some of {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(names)]


def _check_free(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise OutputError(f"'{folder}' is there already; name a new folder.")


def _found(model: Path, part_folder: Path) -> tuple[Path, list[Path]]:
    """(folder of the files beside the model, its ONNX files)."""
    if not model.is_dir():
        place = model.absolute().parent
        return (place.parent if place.name == FOLDER else place), [model]
    suffixes = tuple(filter(None, (*(v.suffix for v in VARIANTS), *OTHER_SUFFIXES)))
    for place in (model / FOLDER, model):
        files = sorted(f for f in place.glob("*.onnx") if not f.stem.endswith(suffixes))
        if files:
            return model, files
    if not any(model.glob("*.safetensors")):
        raise ModelError(
            f"'{model}' has no float ONNX file and no PyTorch weights (model.safetensors); wanted "
            "onnx/model.onnx, or the folder that save_pretrained wrote."
        )
    from onnxq.pytorch.local_model import export_folder  # torch is an extra

    return model, [export_folder(model, part_folder / FOLDER / f"{MODEL}.onnx")]


def _beside(place: Path) -> dict[str, Path]:
    """File name -> path of what is copied."""
    if why := why_no_file(place / CONFIG):
        raise QConfigError(
            f"'{place / CONFIG}': {why}. Clients read the kind of model there: name the folder "
            "that has it and the tokenizer's files (--files)."
        )
    named = {path.name: path for path in sorted(place.iterdir()) if path.suffix in COPIED}
    return {n: p for n, p in named.items() if not n.endswith(NOT_COPIED) and not why_no_file(p)}


def _read_config(path: Path) -> dict[str, object]:
    try:
        config = json.loads(path.read_text("utf-8"))
    except (*UNREADABLE, OSError) as error:
        raise QConfigError(f"'{path}' cannot be read: {error!r:.100}. Repair it.") from error
    if not isinstance(config, dict):
        raise QConfigError(f"'{path}' holds no JSON object. Give the model's own.")
    return config


def _with_data(config: Mapping[str, object], folder: Path) -> dict[str, object]:
    """The configuration, with the files whose weights lie beside them.

    The cache is float32 in every variant: what it said of that goes.
    """
    beside = {path.name.removesuffix("_data"): 1 for path in folder.glob(f"{FOLDER}/*.onnx_data")}
    known = config.get(JS)
    said = dict(known) if isinstance(known, dict) else {}
    for name in ("kv_cache_dtype", "use_external_data_format"):
        said.pop(name, None)
    if beside:
        said["use_external_data_format"] = beside
    others = {key: value for key, value in config.items() if key != JS}
    return others | ({JS: said} if said else {})


def _part(
    name: str,
    model: ir.Model,
    samples: Samples | None,
    config: Mapping[str, object],
    min_sqnr_db: float,
    target: str | Target | None,
) -> Part:
    specs = input_specs(model)
    inputs: list[Batch] | Samples = [likely_batch(specs, config)] if samples is None else samples
    first = next(iter(open_samples(Samples.of(inputs), specs)), None)
    if why := refusal(model, first):
        remedy = "Give --samples." if samples is None else "Look at the samples."
        raise CalibrationError(f"'{name}.onnx' does not run on its inputs: {why}. {remedy}")
    check = Check(inputs, repair=Repair(floor_db=min_sqnr_db))
    return Part(name, model, check, samples, target)


def _with_named_batch(model: ir.Model) -> ir.Model:
    """The batch of a cache is called "batch_size": transformers.js makes an empty cache by it."""
    caches = {s.name: s.shape[0] for s in input_specs(model) if s.name.startswith(PAST) and s.shape}
    batches = {batch for batch in caches.values() if isinstance(batch, str)}
    nameless = [name for name, batch in caches.items() if batch is None]
    for value in (*model.graph.inputs, *model.graph.outputs):
        first = value.shape[0] if value.shape else None
        is_batch = isinstance(first, ir.SymbolicDim) and first.value in batches
        if value.shape and (is_batch or value.name in nameless):
            value.shape = ir.Shape([BATCH, *value.shape[1:]])
    return model


def _written(
    variant: Variant,
    parts: Sequence[Part],
    folder: Path,
    min_sqnr_db: float,
    inline_bytes: int | None,
) -> Iterator[HubFile]:
    """Files of a variant: all of its parts, or none, with the reason."""
    paths = [folder / f"{part.name}{variant.suffix}.onnx" for part in parts]
    found = []
    for part, path in zip(parts, paths, strict=True):
        name = f"{FOLDER}/{path.name}"
        try:
            verdict = _saved(variant, part, path, inline_bytes)
            why = "" if verdict is None else _too_far(verdict, min_sqnr_db)
        except OutputError:
            raise
        except OnnxqError as error:
            verdict, why = None, str(error)
        if why:
            for each in paths:
                each.unlink(missing_ok=True)
                _data_of(each).unlink(missing_ok=True)
            yield HubFile(variant.name, name, verdict=verdict, why=why)
            return
        size, given = size_bytes(path), given_size(part.model)
        found.append(HubFile(variant.name, name, size, size / given, verdict))
    yield from found


def _saved(variant: Variant, part: Part, path: Path, inline_bytes: int | None) -> Verdict | None:
    """Makes, writes and opens a file; its verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # verdicts say it, and `_too_far`
        made = variant.make(part)
    verdict = made.verdict
    save(made, path, Annotations.DROPPED, EXTERNAL_BYTES if inline_bytes is None else inline_bytes)
    _name_data(path)
    if why := refusal(load(path), None):
        raise ModelError(f"ONNX Runtime does not open the file: {why}")
    if verdict is None or part.samples is not None:
        return verdict
    return replace(verdict, input_source=InputSource.MADE_UP)


def _too_far(verdict: Verdict, min_sqnr_db: float) -> str:
    """Why a variant is left out; empty where it is not."""
    if verdict.is_float:
        return "nothing is quantized"
    if verdict.likeness_db >= min_sqnr_db:
        return ""
    worst = min(verdict.outputs, key=lambda output: output.likeness_db)
    return f"below {min_sqnr_db:g} dB: {worst}"


def _data_of(path: Path) -> Path:
    return path.with_name(f"{path.name}_data")


def _name_data(path: Path) -> None:
    """Gives the file of weights beside a model the name that clients look for."""
    for data in data_files(path):
        proto = onnx.load(path, load_external_data=False)
        for entry in locations(proto):
            entry.value = _data_of(path).name
        with as_output_error(path):
            data.rename(_data_of(path))
            path.write_bytes(proto.SerializeToString())

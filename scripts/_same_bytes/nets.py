"""The models whose files are compared, and what is made of each.

Of onnxq, only documented names are imported: the same code runs on the working tree and on an
older commit, whose modules may be elsewhere. Builders, weights and inputs are the working tree's
for both. Imports are inside the functions, so that the golden graphs need no torch.

    architectures   scripts/_architectures, tiny: float.onnx, four static and three dynamic files;
                    trained.onnx is converted from prepare_qat and two batches
    models          models/ with their weights, the same; mobilenetv2_qat4 and mobilenetv2_qat8 are
                    exported from their converted checkpoints, in both formats
    golden          tests/golden_models.py: static ones as above, dynamic ones in their one form

A request that onnxq refuses (training a branch on values) is a file too: NAME.refused holds the
class of the error.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from typing import TYPE_CHECKING, Any

import onnxq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import onnx
    import onnx_ir as ir
    import torch
    from torch import nn

    from onnxq.qconfig import QConfigMapping
    from onnxq.static.statistics import Statistics

    Batch = Mapping[str, npt.NDArray[np.generic]]
    Source = Path | ir.Model | onnx.ModelProto
    Feeds = Mapping[str, torch.Tensor]

TARGETS = ("x86-vnni", "portable")
FORMATS = ("qdq", "qoperator")
SEEDS = (7, 8)  # of the batches to calibrate on and to train with
SAMPLES = 4  # in each
ALONE = {"cond_if"}  # its condition is a mean over the batch: one sample at a time
SMALL = ("residual", "pool_shares", "matmul_integer", "gru_integer", "gather_blocks")
"""Nets that the tests run: five graphs of a second or less."""
MODELS = {
    "resnet20": "models.resnet:resnet20",
    "mobilenetv2": "models.mobilenet:mobilenetv2",
    "transformer": "models.transformer:transformer",
    "digits_lstm": "models.digits:digits_lstm",
    "digits_gru": "models.digits:digits_gru",
}
RECURRENT = {"digits_lstm", "digits_gru"}
CHECKPOINTS = {"mobilenetv2_qat4": 7, "mobilenetv2_qat8": 127}
"""Name -> largest integer of the weights."""


def architectures() -> list[str]:
    """Names of the architectures."""
    from scripts._architectures import ARCHITECTURES

    return list(ARCHITECTURES)


def golden() -> list[str]:
    """Names of the golden graphs."""
    from tests.golden_models import BODIES, DYNAMIC

    return [*BODIES, *DYNAMIC, "everything"]


GROUPS: Mapping[str, Callable[[], list[str]]] = {
    "architectures": architectures,
    "models": lambda: [*MODELS, *CHECKPOINTS],
    "golden": golden,
    "quick": lambda: [*golden(), "vit", "crnn", "mobilenetv3", "digits_gru"],
    "small": lambda: list(SMALL),
}
"""Group -> the names in it."""


def all_names() -> list[str]:
    """Names of all nets, each once."""
    return [name for group in ("golden", "models", "architectures") for name in GROUPS[group]()]


def make(name: str, folder: Path) -> None:
    """Writes the files of a net into the folder, which is there and empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a verdict's, of a file that is compared
        _write(name, folder)


def _write(name: str, folder: Path) -> None:
    if name in golden():
        _golden(name, folder)
    elif name in CHECKPOINTS:
        _checkpoint(name, folder)
    elif name in MODELS:
        _trained_model(name, folder)
    else:
        _architecture(name, folder)


def _architecture(name: str, folder: Path) -> None:
    from scripts._architectures import Size, build

    module, feeds = build(name, Size.TINY)
    onnxq.export(module, feeds(SAMPLES, 5), folder / "float.onnx")
    drawn = [feeds(1 if name in ALONE else SAMPLES, seed) for seed in SEEDS]
    _quantized(folder / "float.onnx", [_arrays(each) for each in drawn], folder)
    _dynamic(folder / "float.onnx", folder)
    again, _ = build(name, Size.TINY)
    _trained(again, drawn, folder)


def _trained_model(name: str, folder: Path) -> None:
    from onnxq.graph.io import save

    module, inputs = _loaded(name)
    (key, images), count = next(iter(inputs.items())), SAMPLES
    onnxq.export(module, {key: images[:count]}, folder / "float.onnx")
    drawn = [{key: images[i : i + count]} for i in (0, count)]
    _quantized(folder / "float.onnx", [_arrays(each) for each in drawn], folder)
    _dynamic(folder / "float.onnx", folder)
    if name in RECURRENT:
        made = onnxq.pytorch.quantize_dynamic(module, inputs=drawn[0], target="x86-vnni")
        save(made, folder / "x86-vnni.modules-dynamic.onnx")
    _trained(_loaded(name)[0], drawn, folder)


def _loaded(name: str) -> tuple[nn.Module, Feeds]:
    """(the module with its weights in eval mode, 8 samples)."""
    import torch

    from scripts._models import ROOT

    module = onnxq.pytorch.load_module(MODELS[name], ROOT / "models" / f"{name}.safetensors")
    if name in RECURRENT:
        from models.digits import load_digits

        return module, {"rows": torch.from_numpy(load_digits("train")[0][: 2 * SAMPLES])}
    from models.cifar10 import load_sample

    images = load_sample("calibration")[0][: 2 * SAMPLES]
    return module, {"image": torch.from_numpy(images)}


def _checkpoint(name: str, folder: Path) -> None:
    """Writes the checkpoint as scripts/train_qat.py prepares it: the state belongs to that."""
    from safetensors.torch import load_file

    from onnxq.observers import LeastErrorObserver
    from onnxq.qconfig import (
        FakeQuantSpec,
        QConfig,
        QConfigMapping,
        ScaleRule,
        get_default_qat_qconfig,
    )
    from scripts._models import ROOT

    module, inputs = _loaded("mobilenetv2")
    entry, largest = get_default_qat_qconfig(), CHECKPOINTS[name]
    if largest < 127:
        start = LeastErrorObserver.with_args(quant_min=-largest, quant_max=largest)
        entry = QConfig(entry.activation, FakeQuantSpec(start, ScaleRule.LEARNED))
    images = inputs["image"][:SAMPLES]
    prepared = onnxq.pytorch.prepare_qat(
        module, inputs=images, qconfig=QConfigMapping(entry), target="x86-vnni"
    )
    converted = onnxq.pytorch.convert(prepared.eval())
    converted.load_state_dict(load_file(ROOT / "models" / f"{name}.safetensors"))
    for form in FORMATS:
        onnxq.export(converted.eval(), images, folder / f"converted.{form}.onnx", format=form)


def _golden(name: str, folder: Path) -> None:
    import numpy as np

    from onnxq.graph.io import save
    from onnxq.qconfig import QConfigDynamic
    from tests.golden_models import BODIES, CONSTANTS, DYNAMIC, conv_model, data, everything

    if name in BODIES:
        model, batches = conv_model(BODIES[name], constants=CONSTANTS), data(2)
        _quantized(model, batches, folder)
        mapping = _all_integers(onnxq.qconfig.default_qconfig_mapping())
        prepared = onnxq.prepare(model, mapping, "portable")
        for batch in batches:
            prepared.run(batch)
        save(onnxq.convert(prepared), folder / "portable.converted.onnx")
        return
    if name in DYNAMIC:
        source, weight, form = DYNAMIC[name]
        entry = QConfigDynamic(weight, form)  # type: ignore[arg-type]  # a form's name will do
        for target in TARGETS:
            made = onnxq.quantize_dynamic(source, entry, target=target, check=onnxq.Check.NONE)
            save(made, folder / f"{target}.dynamic.onnx")
        return
    x = np.random.default_rng(1).standard_normal((2, 3, 6, 6)).astype(np.float32)
    _quantized(everything(), [{"x": x, "c": np.array(c)} for c in (True, False)], folder)


@contextlib.contextmanager
def _refusals(file: Path) -> Iterator[None]:
    """Writes the class of what onnxq raises inside."""
    from onnxq.errors import OnnxqError

    try:
        yield
    except OnnxqError as error:
        file.write_text(f"{type(error).__name__}\n")


def _arrays(feeds: Feeds) -> Batch:
    return {name: tensor.numpy() for name, tensor in feeds.items()}


def _quantized(source: Source, batches: Sequence[Batch], folder: Path) -> None:
    """Static files for each target and format; a target's formats share its statistics.

    NAME.onnx has all integers, which older commits make by default; NAME.best.onnx what is chosen.
    """
    from onnxq.graph.io import save
    from onnxq.qconfig import default_qconfig_mapping

    best = default_qconfig_mapping()
    chosen = {".best": best} if hasattr(best, "choice") else {}
    for target, (ending, mapping) in itertools.product(
        TARGETS, {"": _all_integers(best), **chosen}.items()
    ):
        statistics = onnxq.calibrate(onnxq.prepare(source, mapping, target), batches)
        for form in FORMATS if not ending else FORMATS[:1]:
            made = onnxq.quantize(
                source, **_given(statistics), qconfig=mapping, target=target, format=form
            )
            save(made, folder / f"{target}.{form}{ending}.onnx")


def _given(statistics: Statistics) -> dict[str, Any]:
    """Statistics as an argument of `quantize`; of commits where they were one of their own."""
    own = "statistics" in inspect.signature(onnxq.quantize).parameters
    return {"statistics" if own else "samples": statistics}


def _all_integers(mapping: QConfigMapping) -> QConfigMapping:
    """The mapping; of commits that choose forms, with every node in integers that can be."""
    if not hasattr(mapping, "choice"):
        return mapping
    from onnxq.qconfig import Choice

    return mapping.set_choice(Choice.ALL_INTEGERS)


def _dynamic(source: Source, folder: Path) -> None:
    """Every weight for each target, and what one of them says is fast."""
    from onnxq.graph.io import save

    for target, objective in (*itertools.product(TARGETS, ["size"]), ("x86-vnni", "speed")):
        with _refusals(folder / f"{target}.dynamic-{objective}.refused"):
            made = onnxq.quantize_dynamic(
                source, target=target, objective=objective, check=onnxq.Check.NONE
            )
            save(made, folder / f"{target}.dynamic-{objective}.onnx")


def _trained(module: nn.Module, batches: Sequence[Feeds], folder: Path) -> None:
    """Fake quantization without stubs sees the batches, then the module is converted."""
    with _refusals(folder / "trained.refused"):
        model = onnxq.pytorch.prepare_qat(module, inputs=dict(batches[0]))
        for batch in batches:
            model(**batch)
        converted = onnxq.pytorch.convert(model.eval())
        onnxq.export(converted, dict(batches[0]), folder / "trained.onnx")

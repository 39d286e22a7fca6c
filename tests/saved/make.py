"""Writes what a version of onnxq saves into a folder; v0_1 was made at commit 46d3c0d:

    PYTHONPATH=/path/to/onnxq-0.1:. python -P -m tests.saved.make tests/saved/v0_1

tests/test_saved.py reads it with the onnxq of today. A later version gets a folder of its own.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
import torch
from torch import nn

import onnxq
from onnxq.graph.io import save
from onnxq.observers import MovingAverageMinMaxObserver
from onnxq.pytorch import convert, fuse_modules, fuse_modules_qat, prepare, prepare_qat
from onnxq.pytorch.tensor_quant import QuantDescriptor
from onnxq.qconfig import QConfig, get_default_qat_qconfig, get_default_qconfig
from onnxq.qtensor import save as save_tensor
from tests.saved import samples

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

FUSED = [["conv.0", "conv.1", "conv.2"]]


class Prepared(NamedTuple):
    """How a module is prepared anew, and what data it has seen when its state is saved."""

    fresh: Callable[[], nn.Module]
    seen: list[torch.Tensor]
    x: torch.Tensor


def set_qconfig(net: nn.Module, qconfig: QConfig) -> None:
    """The documented assignment, of which mypy knows nothing."""
    setattr(net, "qconfig", qconfig)  # noqa: B010


def observed() -> nn.Module:
    """`Layers` with observers, with stubs."""
    net = samples.Layers().eval()
    # the default one's histograms are 75 kB a tensor; chain.stats has such a state
    ranges = MovingAverageMinMaxObserver.with_args()
    set_qconfig(net, QConfig(ranges, get_default_qconfig("x86").weight))
    return prepare(fuse_modules(net, FUSED))


def trained() -> nn.Module:
    """`Layers` with fake quantization, with stubs."""
    net = samples.Layers().train()
    set_qconfig(net, get_default_qat_qconfig())
    return prepare_qat(fuse_modules_qat(net, FUSED))


def placed() -> nn.Module:
    """`Words` with fake quantization, without stubs."""
    return prepare_qat(samples.Words().train(), inputs=samples.ids(0))


def described() -> nn.Module:
    """`Descriptors` with fixed ranges."""
    net = samples.Descriptors()
    for part, amax in ((net.input, torch.tensor(2.5)), (net.output, torch.ones(1, samples.SIDE))):
        part.amax = amax
    return net


def prepared_modules() -> dict[str, Prepared]:
    """File name -> a module."""
    batches = [samples.images(seed) for seed in (1, 2)]
    words = [samples.ids(seed) for seed in (1, 2)]
    x = torch.from_numpy(samples.samples()[0]["x"])
    return {
        "observed": Prepared(observed, batches, samples.images(3)),
        "trained": Prepared(trained, batches, samples.images(3)),
        "words": Prepared(placed, words, samples.ids(3)),
        "described": Prepared(described, [x], x),
    }


def run(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The output in eval mode."""
    with torch.no_grad():
        result: torch.Tensor = module.eval()(x)
    return result


def stages(folder: Path) -> None:
    """The values of the stages, and the files that they lead to."""
    source, batches = samples.chain(), samples.samples()
    onnx.save(source, folder / "float.onnx")
    prepared = onnxq.prepare(folder / "float.onnx", samples.chain_qconfig(), "portable")
    statistics = onnxq.calibrate(prepared, batches)
    statistics.save(folder / "chain.stats")
    plan = onnxq.plan(prepared, statistics, "size")  # type: ignore[arg-type]  # its name will do
    save(onnxq.rewrite(prepared, plan), folder / "int8.onnx")
    qparams = {
        name: observer.calculate_qparams().to_dict()
        for name, observer in statistics.observers.items()
    }
    (folder / "qparams.json").write_text(json.dumps(qparams, indent=1))
    int8 = folder / "int8.onnx"
    found = onnxq.verify(folder / "float.onnx", int8, batches)
    (folder / "findings.json").write_text(found.to_json())
    (folder / "prediction.json").write_text(onnxq.predict(int8, batches).to_json())


def observers(folder: Path) -> None:
    """The state of every observer, and the qparams of those that have any."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    qparams = {}
    for name, spec in samples.ALL_OBSERVERS.items():
        observer = spec()
        for index, batch in enumerate(samples.samples()):
            observer.observe(batch["x"], index)
        arrays |= {f"{name}/{key}": array for key, array in observer.state().items()}
        if name not in samples.WITHOUT_QPARAMS:
            qparams[name] = observer.calculate_qparams().to_dict()
    np.savez_compressed(folder / "observers.npz", **arrays)  # type: ignore[arg-type]  # its stub takes one of the names as a flag
    (folder / "observers.json").write_text(json.dumps(qparams, indent=1))


def texts(folder: Path) -> None:
    """YAML."""
    (folder / "qconfig.yaml").write_text(samples.every_entry().to_yaml())
    (folder / "descriptor.yaml").write_text(descriptor().to_yaml())


def descriptor() -> QuantDescriptor:
    """One that has no default."""
    return QuantDescriptor(num_bits=4, axis=(0, 1), unsigned=True, narrow_range=True, amax=[1, 2.5])


def modules(folder: Path) -> None:
    """States of modules, prepared and converted, and what they compute."""
    for name, (fresh, seen, x) in prepared_modules().items():
        torch.manual_seed(1)
        module = fresh()
        for batch in seen:
            module(batch)
        torch.save(module.state_dict(), folder / f"{name}.pt")
        arrays = {}
        if name != "described":
            converted = convert(module.eval())
            torch.save(converted.state_dict(), folder / f"{name}.converted.pt")
            arrays["converted"] = run(converted, x).numpy()
        arrays["y"] = run(module, x).numpy()  # last: observers watch it
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # likewise


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    stages(folder)
    observers(folder)
    texts(folder)
    modules(folder)
    for name, tensor in samples.tensors().items():
        save_tensor(tensor, folder / f"{name}.npz")


if __name__ == "__main__":
    main()

"""Steps that commands share: paths checked first, then the stages."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from onnxq.cli.io_options import NO_IO, InputsOutputs
from onnxq.cli.worker_options import NO_WORKERS, Workers
from onnxq.errors import OutputError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

    import onnx_ir as ir

    from onnxq.checking.check import Check
    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.qconfig import QConfigMapping
    from onnxq.samples import Samples
    from onnxq.samples.excerpt import Excerpt
    from onnxq.static.calibrate import Checkpoint, Statistics
    from onnxq.static.prepared import Prepared
    from onnxq.targets import Target


NO_STATE: Mapping[str, str] = MappingProxyType({})
"""No output of a batch is an input of the next one."""


def given(*paths: Path | None) -> list[Path]:
    """Drops the paths that were not given."""
    return [path for path in paths if path is not None]


def made_output(output: Path | None, model: Path, ending: str) -> Path:
    """The file to write: MODEL with another ending, in this folder, where none is named."""
    if output is not None:
        return output
    path = Path(f"{model.stem}.{ending}.onnx")
    if path.exists():
        raise OutputError(f"'{path}' is there already; name it with -o {path} to overwrite it.")
    return path


def claim_outputs(model: Path, outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Claims outputs, as `claim`, with the model among the inputs."""
    from onnxq.graph.io import refuse_folder

    refuse_folder(model)
    claim(outputs, [model, *inputs])


def claim(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Passes where every output can be written and is none of the files that are read."""
    from onnxq.graph.io import check_writable

    # resolve() raises RuntimeError for links that lead in a circle
    read = [Path(os.path.realpath(path)) for path in inputs]
    written: list[Path] = []
    for path in outputs:
        target = check_writable(path).resolve()
        if any(_same_file(target, other) or other in target.parents for other in read):
            raise OutputError(f"'{path}' is also read by this command; choose another output.")
        if any(_same_file(target, other) for other in written):
            raise OutputError(f"'{path}' is written twice by this command; choose another output.")
        written.append(target)


def claim_folder(folder: Path) -> None:
    """Passes a folder that can be written to, or made in one that is there."""
    there = folder if folder.exists() else folder.absolute().parent
    if there.exists() and not there.is_dir():
        raise OutputError(f"'{folder}' cannot be made: '{there}' is a file; choose another folder.")
    if not there.exists():
        raise OutputError(
            f"'{folder}' cannot be made: folder '{there}' does not exist. Make it, or give another."
        )
    if not os.access(there, os.W_OK):
        raise OutputError(f"'{folder}' cannot be written to: folder '{there}' is read-only.")


def _same_file(first: Path, second: Path) -> bool:
    """Hard links count: writing one would change the other."""
    if first == second:
        return True
    return first.exists() and second.exists() and first.samefile(second)


def load_model(path: Path, outputs: Iterable[Path] = ()) -> ir.Model:
    """The model of the file."""
    from onnxq.graph.given_file import external_files
    from onnxq.graph.io import load

    model = load(path)
    claim(outputs, external_files(model))
    return model


def asked_mapping(
    qconfig: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    choice: str | None = None,
    improve: tuple[str, ...] | None = None,
    weight_bits: int | None = None,
) -> QConfigMapping | None:
    """The mapping that the options name for that target; None: they name none.

    Names are checked here, so that a typing error does not wait for a model of gigabytes.
    """
    from onnxq.qconfig import (
        Choice,
        QConfigMapping,
        default_choice,
        default_qconfig_mapping,
        get_default_qconfig,
    )
    from onnxq.static.prepare import backend_of
    from onnxq.weights import wanted

    backend = backend_of(target)
    mapping: QConfigMapping | None = None
    if qconfig is not None:
        mapping = QConfigMapping.from_yaml(
            qconfig, get_default_qconfig(backend), default_choice(backend)
        )
    if overrides:
        mapping = (mapping or default_qconfig_mapping(backend)).with_overrides(overrides)
    if improve is not None:
        mapping = (mapping or default_qconfig_mapping(backend)).set_improve(improve)
    if weight_bits is not None:
        mapping = (mapping or default_qconfig_mapping(backend)).set_weight_bits(weight_bits)
    if mapping is not None:
        wanted(mapping.algorithms)
    if choice is not None:
        mapping = (mapping or default_qconfig_mapping(backend)).set_choice(Choice(choice))
    if mapping is None and backend:  # a target that is a value says no backend
        return default_qconfig_mapping(backend)
    return mapping


def asked_target(target: str | None, reduce_range: str | None) -> str | Target | None:
    """The target that the options name."""
    from onnxq import targets

    if reduce_range is None:
        return target
    return targets.resolve(target).with_reduce_range(reduce_range)


def prepare_model(
    model: ir.Model,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    feedback: Mapping[str, str] = NO_STATE,
    reduce_range: str | None = None,
    choice: str | None = None,
    io: InputsOutputs = NO_IO,
    costs: Path | None = None,
    improve: tuple[str, ...] | None = None,
    weight_bits: int | None = None,
) -> Prepared:
    """A Prepared of the model, with the configuration, target and costs that were named."""
    from onnxq.static.prepare import prepare
    from onnxq.times import Costs

    machine = asked_target(target, reduce_range)
    mapping = asked_mapping(qconfig, overrides, target, choice, improve, weight_bits)
    return prepare(
        model,
        mapping,
        machine,
        feedback,
        quantized_input=io.quantized_input,
        quantized_output=io.outputs,
        costs=None if costs is None else Costs.load(costs),
    )


def calibrate_model(
    prepared: Prepared,
    samples: Samples,
    previous: Statistics | None = None,
    shard: tuple[int, int] = (0, 1),
    stopped: threading.Event | None = None,
    checkpoint: Checkpoint | None = None,
    excerpt: Excerpt | None = None,
    threads: int | None = None,
    workers: Workers = NO_WORKERS,
    provider: str = "CPUExecutionProvider",
) -> Statistics:
    """Statistics of the samples, from the first on; those that `previous` has are not run again."""
    from onnxq.report.progress import progress_bar
    from onnxq.samples import open_samples
    from onnxq.static.calibrate import Shard, calibrate

    batches = open_samples(samples, prepared.inputs)
    if excerpt is not None:
        batches = excerpt.watching(batches)

    if stopped is not None:
        batches = batches.until(stopped.is_set)
    with workers.executor() as executor, progress_bar("calibrate") as progress:
        return calibrate(
            prepared,
            batches,
            statistics=previous,
            first_batch=0,
            shard=Shard(*shard),
            checkpoint=checkpoint,
            progress=progress,
            threads=threads,
            executor=executor,
            provider=provider,
        )


def merged_files(files: tuple[Path, ...]) -> Statistics:
    """The statistics of all files, as if one run had made them."""
    from onnxq.static.merging import merged
    from onnxq.static.statistics import Statistics

    return merged(Statistics.load(file) for file in files)


def plan_dynamic_model(
    model: ir.Model,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    objective: str,
    dtype: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    check: Check | None = None,
    weight_bits: int | None = None,
) -> tuple[ir.Model, DynamicPlan]:
    """(canonical model, dynamic plan), with the configuration and target that were named."""
    from onnxq.checking.check import Check
    from onnxq.dynamic.dynamic_decision import as_objective
    from onnxq.dynamic.spec import entry_for
    from onnxq.pipeline import plan_dynamic
    from onnxq.qconfig import QConfigMapping

    # names are checked first, as in prepare_model
    as_objective(objective)
    entry = entry_for(dtype or "qint8")
    mapping = QConfigMapping(entry)
    if qconfig is not None:
        mapping = QConfigMapping.from_yaml(qconfig, entry)
    mapping = mapping.with_overrides(overrides)
    return plan_dynamic(
        model,
        mapping,
        dtype,
        target=target,
        objective=objective,
        check=check or Check.CALIBRATION,
        weight_bits=weight_bits,
        shapes=shapes,
    )

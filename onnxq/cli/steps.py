"""Steps that commands share: paths checked first, then the stages, then the report."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxq.errors import OutputError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.checking.runnable import Made
    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.quantized.verdict import Verdict
    from onnxq.samples.excerpt import Excerpt
    from onnxq.static.calibrate import Checkpoint, Statistics
    from onnxq.static.plan import Plan
    from onnxq.static.prepare import Prepared


def given(*paths: Path | None) -> list[Path]:
    """Drops the paths that were not given."""
    return [path for path in paths if path is not None]


def claim_beside(model: Path, outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Claims outputs, as `claim`, with the model among the inputs.

    Raises:
        ModelError: the model is a folder, which the outputs may well be in.
        OutputError: as `claim`.
    """
    from onnxq.graph.io import refuse_folder

    refuse_folder(model)
    claim(outputs, [model, *inputs])


def claim(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Passes where every output can be written and is none of the files that are read.

    Raises:
        OutputError: with the path, before any work is done.
    """
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


def _same_file(first: Path, second: Path) -> bool:
    """Hard links count: writing one would change the other."""
    if first == second:
        return True
    return first.exists() and second.exists() and first.samefile(second)


def load_model(path: Path, outputs: Iterable[Path] = ()) -> ir.Model:
    """The model of the file.

    Raises:
        ModelError: it cannot be read.
        OutputError: an output is a file that holds the model's weights.
    """
    from onnxq.checking.bench import external_files
    from onnxq.graph.io import load

    model = load(path)
    claim(outputs, external_files(model))
    return model


def prepare_model(
    model: ir.Model,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    feedback: dict[str, str] | None = None,
    range_reduction: str | None = None,
) -> Prepared:
    """A Prepared of the model, with the configuration and target that were named."""
    from onnxq import targets
    from onnxq.qconfig import QConfigMapping, default_qconfig_mapping, get_default_qconfig
    from onnxq.static.prepare import backend_of, prepare
    from onnxq.targets.range_reduction import as_range_reduction

    # names are checked first: a typing error should not wait for a model of gigabytes to be hashed
    if target is not None:
        targets.find(target)
    if range_reduction is not None:
        as_range_reduction(range_reduction)
    backend = backend_of(target)
    mapping: QConfigMapping | None = None
    if qconfig is not None:
        mapping = QConfigMapping.from_yaml(qconfig, get_default_qconfig(backend))
    if overrides:
        mapping = (mapping or default_qconfig_mapping(backend)).with_overrides(overrides)
    return prepare(model, mapping, target, feedback, range_reduction)


def calibrate_model(
    prepared: Prepared,
    samples: Path | None,
    ignore: tuple[str, ...],
    batch_size: int | None,
    previous: Statistics | None = None,
    shard: tuple[int, int] = (0, 1),
    stopped: threading.Event | None = None,
    checkpoint: Checkpoint | None = None,
    excerpt: Excerpt | None = None,
) -> Statistics:
    """Statistics of the samples, from the first on; those that `previous` has are not run again."""
    from onnxq.report.progress import progress_bar
    from onnxq.samples import Samples, input_specs, open_samples
    from onnxq.static.calibrate import Shard, calibrate

    assert samples is not None
    specs = input_specs(prepared.model, prepared.feedback.values())
    batches = open_samples(samples, specs, batch_size, ignore)
    if excerpt is not None:
        batches = excerpt.watching(batches)

    def until_stopped() -> Iterator[dict[str, npt.NDArray[np.generic]]]:
        for batch in batches:
            if stopped is not None and stopped.is_set():
                return
            yield batch

    with progress_bar("calibrate") as progress:
        return calibrate(
            prepared,
            Samples(batches.where, batches.count, until_stopped),
            statistics=previous,
            first_batch=0,
            shard=Shard(*shard),
            checkpoint=checkpoint,
            progress=progress,
        )


def merged(files: tuple[Path, ...]) -> Statistics:
    """The statistics of all files, as if one run had made them."""
    from onnxq.static.calibrate import Statistics

    first, *others = (Statistics.load(file) for file in files)
    for other in others:
        first = first.merge(other)
    return first


@dataclass(frozen=True, slots=True)
class Written:
    """A quantized model that was written to a file.

    Attributes:
        made: the quantized model.
        source: file of the float model.
        file: of the quantized one.
    """

    made: Made[Plan] | Made[DynamicPlan]
    source: Path
    file: Path

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the two files."""
        from onnxq.checking.bench import size_bytes

        return size_bytes(self.source), size_bytes(self.file)

    @property
    def verdict(self) -> Verdict | None:
        """The model's verdict, with the sizes of the files."""
        verdict = self.made.model.verdict
        if verdict is None:
            return None
        before, after = self.sizes
        return dataclasses.replace(verdict, float_bytes=before, quantized_bytes=after)


def report_quantization(prepared: Prepared, made: Plan, written: Written, as_json: bool) -> None:
    """Says what became of each operator, and what ONNX Runtime runs."""
    from onnxq.graph.checks import FORMAT_KEY
    from onnxq.qdq.qoperator import remains
    from onnxq.report import console, json_values, other_machines
    from onnxq.report.summary import summarize

    summary = summarize(prepared.model, made.decisions, made.dynamic)
    model, runs = written.made.model, written.made.execution
    elsewhere = [] if runs is None else other_machines.on_other_machines(made, runs)
    sizes = written.sizes
    remaining = remains(model)
    _warn_if_low(written)
    if as_json:
        value = {
            "output": str(written.file),
            "target": made.target,
            "format": model.metadata_props[FORMAT_KEY],
            "kept_qdq": dict(remaining.kept),
            "tables": list(remaining.tables),
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": [*made.notes, *elsewhere],
            "range_reduction": made.range_reduction.value,
            "reductions": {k: dataclasses.asdict(r) for k, r in made.reductions.items()},
            **_tried(written),
        }
        click.echo(json_values.to_text(value | json_values.summary(summary)))
        return
    click.echo(f"{written.file}: quantized for {made.target}")
    rows = other_machines.reduced_rows(made)
    if rows:
        header = ("node", "channels", "largest scale", "mean")
        title = f"gave up range of weights, so that pairs of products fit ({made.range_reduction})"
        console.print_table(console.open_console(), title, header, rows, numbers=(1, 2, 3))
    notes = [*made.notes, *remaining.sentences(), *elsewhere]
    console.print_quantization(console.open_console(), summary, runs, sizes, notes)
    _say_verdict(written)


def _tried(written: Written) -> dict[str, object]:
    """Verdict and execution for --json; null where the model was not run."""
    from onnxq.report import json_values

    verdict, runs = written.verdict, written.made.execution
    return {
        "verdict": None if verdict is None else verdict.to_dict(),
        "execution": None if runs is None else json_values.execution(runs),
    }


def _say_verdict(written: Written) -> None:
    """Prints the verdict; says so where there is none."""
    from onnxq.report import console
    from onnxq.report.print_verdict import print_verdict

    verdict = written.verdict
    if verdict is None:
        click.echo("no verdict: the file was not run")
        return
    print_verdict(console.open_console(), verdict, written.source, written.file)


def _warn_if_low(written: Written) -> None:
    verdict = written.verdict
    if verdict is not None and verdict.warning:
        click.echo(f"warning: {verdict.warning}", err=True)


def plan_dynamic_model(
    model: ir.Model,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    objective: str,
    dtype: str | None = None,
) -> tuple[ir.Model, DynamicPlan]:
    """(canonical model, dynamic plan), with the configuration and target that were named."""
    from onnxq import targets
    from onnxq.dynamic.dynamic_decision import as_objective
    from onnxq.dynamic.spec import entry_for
    from onnxq.pipeline import plan_dynamic
    from onnxq.qconfig import QConfigMapping

    # names are checked first, as in prepare_model
    as_objective(objective)
    if target is not None:
        targets.find(target)
    entry = entry_for(dtype or "qint8")
    mapping = QConfigMapping(entry)
    if qconfig is not None:
        mapping = QConfigMapping.from_yaml(qconfig, entry)
    mapping = mapping.with_overrides(overrides)
    return plan_dynamic(model, mapping, dtype, target=target, objective=objective)


def report_dynamic(source: ir.Model, made: DynamicPlan, written: Written, as_json: bool) -> None:
    """Says which nodes were quantized and how, why others were not, and the sizes."""
    from onnxq.graph.checks import FORMAT_KEY
    from onnxq.report import console, json_values
    from onnxq.report.summary import summarize

    summary = summarize(source, made.decisions)
    model, runs, sizes = written.made.model, written.made.execution, written.sizes
    _warn_if_low(written)
    if as_json:
        value = {
            "output": str(written.file),
            "target": made.target,
            "objective": made.objective.value,
            "format": model.metadata_props.get(FORMAT_KEY, "float"),
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": list(made.notes),
            **_tried(written),
        }
        forms = {name: decision.form.value for name, decision in made.quantized.items()}
        click.echo(json_values.to_text(value | {"forms": forms} | json_values.summary(summary)))
        return
    done = "quantized dynamically" if made.quantized else "nothing is quantized"
    click.echo(f"{written.file}: {done} for {made.target}, objective {made.objective.value}")
    console.print_quantization(console.open_console(), summary, runs, sizes, made.notes)
    _say_verdict(written)

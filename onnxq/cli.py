"""The command line: one command per stage. Heavy imports are inside the commands: --help is quick.

Results go to stdout: tables, or JSON with --json; progress, warnings and errors to stderr. Errors
end with the exit code that errors.py draws. Every output path is checked before the work begins.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxq.errors import OnnxqError, OutputError, QConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    from onnxq.qconfig import QConfigMapping
    from onnxq.stages.calibrate import Statistics
    from onnxq.stages.findings import Execution
    from onnxq.stages.plan import Plan
    from onnxq.stages.prepare import Prepared

INTERRUPTED = 130  # what shells report of a program that Ctrl-C ended
_PATH = click.Path(path_type=Path)


class _Commands(click.Group):
    """Turns an OnnxqError into its message and exit code, and warnings into one line each."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command that ctx names."""
        with _plain_warnings():
            try:
                return super().invoke(ctx)
            except OnnxqError as error:
                click.echo(f"Error: {error}", err=True)
                ctx.exit(error.exit_code)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: click.echo(
            f"warning: {message}", err=True
        )
        yield


def _pair(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """{"out": "in"} of ("out=in",)."""
    pairs = {}
    for text in values:
        left, equals, right = text.partition("=")
        if not (left and equals and right):
            raise click.BadParameter(f"'{text}': wanted OUTPUT=INPUT.", param=param)
        pairs[left] = right
    return pairs


def _shard(_ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, int]:
    """(0, 4) of "1/4"."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise click.BadParameter(f"'{text}': wanted I/N with 1 <= I <= N, as in 1/4.", param=param)
    return int(index) - 1, int(count)


_output = click.option("-o", "--output", type=_PATH, required=True, help="File to write.")
_json = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for programs.")
_target = click.option("--target", metavar="NAME", help="Machine it is for; see `onnxq targets`.")
_qconfig = click.option("--qconfig", type=_PATH, help="YAML file: what to quantize, and how.")
_batch_size = click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help="Samples per run; default: the model's, else 1.",
)
_ignore = click.option(
    "--ignore", multiple=True, metavar="NAME", help="An array in SAMPLES that is no input (labels)."
)
_feedback = click.option(
    "--feedback",
    multiple=True,
    metavar="OUTPUT=INPUT",
    callback=_pair,
    help="State: this output of a batch is that input of the next one. May be repeated.",
)


@click.group(cls=_Commands)
@click.version_option(package_name="onnxq", message="onnxq %(version)s")
def main() -> None:
    """Quantize ONNX models, run them on ONNX Runtime, and check every integer."""


@main.command()
@click.argument("module", metavar="MODULE:FACTORY")
@click.option("--weights", type=_PATH, help="safetensors file to load into the module.")
@click.option(
    "--samples", type=_PATH, help="npz file of example inputs, named as forward's parameters."
)
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=DTYPE[SHAPE]", help="A random example input."
)
@click.option("--output-name", "output_names", multiple=True, help="Name of an output, in order.")
@click.option("--opset", type=int, help="18 to 22.")
@_output
def export(
    module: str,
    weights: Path | None,
    samples: Path | None,
    inputs: tuple[str, ...],
    output_names: tuple[str, ...],
    opset: int | None,
    output: Path,
) -> None:
    """Export a PyTorch module to a float ONNX model and check one against the other.

    MODULE:FACTORY names a function without arguments that makes the module, as in
    models.resnet:resnet20; the current folder is on the module path.
    """
    if samples is not None and inputs:
        raise click.UsageError("give --samples or --input, not both.")
    _claim([output], [p for p in (weights, samples) if p is not None])
    from onnxq import pytorch
    from onnxq.report.console import size_text

    made = pytorch.load_module(module, weights)
    if samples is not None:
        example: pytorch.Inputs = pytorch.read_inputs(samples)
    elif inputs:
        example = dict(pytorch.parse_input(text) for text in inputs)
    else:
        example = pytorch.example_inputs(made)
    names = output_names or None
    if opset is None:
        model = pytorch.export(made, example, output, output_names=names)
    else:
        model = pytorch.export(made, example, output, opset=opset, output_names=names)
    click.echo(
        f"{output}: opset {model.opset_imports['']}, {len(model.graph)} nodes, "
        f"{size_text(output.stat().st_size)}; agrees with the module on its example inputs"
    )


@main.command()
@click.argument("model", type=_PATH)
@_qconfig
@_target
@_json
def inspect(model: Path, qconfig: Path | None, target: str | None, as_json: bool) -> None:
    """Say of every node whether it would be quantized, how, and if not why. Needs no data."""
    from onnxq.report import console, machine
    from onnxq.report.summary import summarize

    prepared = _prepare(model, qconfig, target, {})
    summary = summarize(prepared.model, prepared.decisions)
    if as_json:
        value = {"target": prepared.target.name, "notes": list(prepared.notes)} | machine.summary(
            summary
        )
        click.echo(machine.to_text(value))
        return
    console.print_inspection(console.open_console(), summary, prepared.notes)


@main.command()
@click.argument("model", type=_PATH)
@click.argument("samples", type=_PATH)
@_output
@_qconfig
@_target
@_batch_size
@_ignore
@_feedback
@click.option("--resume", is_flag=True, help="Go on from the statistics in the output file.")
@click.option(
    "--shard",
    metavar="I/N",
    default="1/1",
    callback=_shard,
    help="Only every N-th batch, from the I-th on.",
)
def calibrate(
    model: Path,
    samples: Path,
    output: Path,
    qconfig: Path | None,
    target: str | None,
    batch_size: int | None,
    ignore: tuple[str, ...],
    feedback: dict[str, str],
    resume: bool,
    shard: tuple[int, int],
) -> None:
    """Observe the activations of MODEL on SAMPLES: an npz or npy file, or a folder of them."""
    _claim([output], [model, samples, *_given(qconfig)])
    from onnxq.stages.calibrate import Statistics

    prepared = _prepare(model, qconfig, target, feedback)
    previous = Statistics.load(output) if resume and output.exists() else None
    with _stoppable() as stopped:
        statistics = _calibrate(prepared, samples, ignore, batch_size, previous, shard, stopped)
    statistics.save(output)
    count = len(statistics.batches)
    click.echo(f"{output}: {len(prepared.observed)} tensors, {count} batches")
    if stopped.is_set():
        click.echo("stopped; go on with the same command and --resume", err=True)
        raise click.exceptions.Exit(INTERRUPTED)


@main.command()
@click.argument("model", type=_PATH)
@click.argument("samples", type=_PATH, required=False)
@_output
@_qconfig
@_target
@_batch_size
@_ignore
@_feedback
@click.option(
    "--stats", multiple=True, type=_PATH, help="Statistics in place of SAMPLES; repeated: merged."
)
@click.option(
    "--format", "form", default="qdq", show_default=True, help="Form of the integer graph."
)
@click.option("--save-plan", type=_PATH, help="Write the plan, as JSON.")
@click.option("--save-stats", type=_PATH, help="Write the statistics.")
@_json
def quantize(
    model: Path,
    samples: Path | None,
    output: Path,
    qconfig: Path | None,
    target: str | None,
    batch_size: int | None,
    ignore: tuple[str, ...],
    feedback: dict[str, str],
    stats: tuple[Path, ...],
    form: str,
    save_plan: Path | None,
    save_stats: Path | None,
    as_json: bool,
) -> None:
    """Quantize MODEL, calibrated on SAMPLES or with --stats."""
    if (samples is None) != bool(stats):
        raise click.UsageError("give SAMPLES or --stats, one of the two.")
    _claim([output, *_given(save_plan, save_stats)], [model, *_given(samples, qconfig), *stats])
    from onnxq.graph.io import save
    from onnxq.stages.execution import execution
    from onnxq.stages.plan import plan
    from onnxq.stages.rewrite import FORMATS, rewrite

    if form not in FORMATS:  # before the calibration, which may take minutes
        known = ", ".join(FORMATS)
        raise QConfigError(f"format '{form}' is not known; known: {known}.{nearest(form, FORMATS)}")
    prepared = _prepare(model, qconfig, target, feedback)
    statistics = _merged(stats) if stats else _calibrate(prepared, samples, ignore, batch_size)
    made = plan(prepared, statistics)
    quantized = rewrite(prepared, made, form)
    runs = execution(quantized)  # first: a model that ONNX Runtime refuses is not written
    save(quantized, output)
    if save_plan is not None:
        made.save(save_plan)
    if save_stats is not None:
        statistics.save(save_stats)
    _report_quantization(prepared, made, runs, (model, output), as_json)


@main.command()
@click.argument("model", metavar="FLOAT", type=_PATH)
@click.argument("quantized", metavar="QUANTIZED", type=_PATH)
@click.argument("samples", type=_PATH)
@_batch_size
@_ignore
@_feedback
@click.option(
    "--min-sqnr", type=float, metavar="DB", help="Fail (exit code 8) where the SQNR is lower."
)
@click.option(
    "--max-steps", type=float, metavar="N", help="Fail where an error is larger, in steps."
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Compare these tensors and outputs only."
)
@_json
def verify(
    model: Path,
    quantized: Path,
    samples: Path,
    batch_size: int | None,
    ignore: tuple[str, ...],
    feedback: dict[str, str],
    min_sqnr: float | None,
    max_steps: float | None,
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run both models on SAMPLES side by side: what did quantization change?

    The bounds hold for every tensor and output that is compared; --only narrows that down.
    """
    from onnxq.report import console
    from onnxq.report.progress import progress_bar
    from onnxq.stages.verify import EVERYTHING
    from onnxq.stages.verify import verify as run

    with progress_bar("verify") as progress:
        findings = run(
            model,
            quantized,
            samples,
            batch_size=batch_size,
            ignore=ignore,
            feedback=feedback,
            only=only or EVERYTHING,
            progress=progress,
        )
    if as_json:
        click.echo(findings.to_json())
    else:
        console.print_findings(console.open_console(), findings)
    findings.check(min_sqnr, max_steps)


@main.command()
@click.argument("model", metavar="FLOAT", type=_PATH)
@click.argument("quantized", metavar="QUANTIZED", type=_PATH)
@click.argument("samples", type=_PATH, required=False)
@_ignore
@click.option(
    "--batch", type=click.IntRange(min=1), help="Samples per run; default: the model's, else 1."
)
@click.option(
    "--runs", type=click.IntRange(min=1), default=50, show_default=True, help="Timed pairs."
)
@_json
def bench(
    model: Path,
    quantized: Path,
    samples: Path | None,
    ignore: tuple[str, ...],
    batch: int | None,
    runs: int,
    as_json: bool,
) -> None:
    """Time both models in turns, on one thread; inputs are random where no SAMPLES are given."""
    from onnxq.report import console, machine
    from onnxq.stages.bench import bench as run

    result = run(model, quantized, samples, batch_size=batch, ignore=ignore, runs=runs)
    if as_json:
        click.echo(machine.to_text(machine.benchmark(result)))
        return
    console.print_benchmark(console.open_console(), result)


@main.command()
@_json
def targets(as_json: bool) -> None:
    """List the machines that models can be quantized for."""
    from onnxq import targets as known
    from onnxq.report import console, machine

    if as_json:
        value = {
            "default": known.get_default().name,
            "aliases": known.aliases(),
            "targets": machine.targets(known.all_targets()),
        }
        click.echo(machine.to_text(value))
        return
    console.print_targets(
        console.open_console(), known.all_targets(), known.get_default().name, known.aliases()
    )


# --- what the commands share


def _given(*paths: Path | None) -> list[Path]:
    return [path for path in paths if path is not None]


def _claim(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Passes where every output can be written and is none of the files that are read.

    Raises:
        OutputError: with the path, before any work is done.
    """
    from onnxq.graph.io import check_writable

    taken = {path.resolve(): "is also read" for path in inputs}
    for path in outputs:
        target = check_writable(path).resolve()
        if target in taken or any(_same_file(target, other) for other in taken):
            raise OutputError(
                f"'{path}' {taken.get(target, 'is also read')} by this command; choose another."
            )
        taken[target] = "is written twice"


def _same_file(first: Path, second: Path) -> bool:
    """Hard links count: writing one would change the other."""
    return first.exists() and second.exists() and first.samefile(second)


@contextlib.contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that what was seen is saved; a second one kills."""
    stopped = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _prepare(
    model: Path, qconfig: Path | None, target: str | None, feedback: dict[str, str]
) -> Prepared:
    from onnxq import targets as known
    from onnxq.qconfig import QConfigMapping
    from onnxq.stages.prepare import prepare

    # cheap checks of names first: a typing error should not wait for a model of gigabytes
    chosen = None if target is None else known.find(target)
    mapping: QConfigMapping | None = None if qconfig is None else QConfigMapping.from_yaml(qconfig)
    return prepare(model, mapping, chosen, feedback)


def _calibrate(
    prepared: Prepared,
    samples: Path | None,
    ignore: tuple[str, ...],
    batch_size: int | None,
    previous: Statistics | None = None,
    shard: tuple[int, int] = (0, 1),
    stopped: threading.Event | None = None,
) -> Statistics:
    """Statistics of the samples, from the first on; those that `previous` has are not run again."""
    from onnxq.report.progress import progress_bar
    from onnxq.samples import Samples, input_specs, open_samples
    from onnxq.stages.calibrate import Shard, calibrate

    assert samples is not None
    specs = input_specs(prepared.model, prepared.feedback.values())
    batches = open_samples(samples, specs, batch_size, ignore)

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
            progress=progress,
        )


def _merged(files: tuple[Path, ...]) -> Statistics:
    from onnxq.stages.calibrate import Statistics

    first, *others = (Statistics.load(file) for file in files)
    for other in others:
        first = first.merge(other)
    return first


def _report_quantization(
    prepared: Prepared, made: Plan, runs: Execution, files: tuple[Path, Path], as_json: bool
) -> None:
    from onnxq.report import console, machine
    from onnxq.report.summary import summarize
    from onnxq.stages.bench import size_bytes

    summary = summarize(prepared.model, made.decisions)
    sizes = size_bytes(files[0]), size_bytes(files[1])
    if as_json:
        value = {
            "output": str(files[1]),
            "target": made.target,
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": list(made.notes),
            "execution": machine.execution(runs),
        }
        click.echo(machine.to_text(value | machine.summary(summary)))
        return
    click.echo(f"{files[1]}: quantized for {made.target}")
    console.print_quantization(console.open_console(), summary, runs, sizes, made.notes)

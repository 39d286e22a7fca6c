"""The command that exports a PyTorch module: export."""

import inspect
from pathlib import Path

import click

from onnxq.cli.common_options import say_written
from onnxq.cli.options import PATH, output_option
from onnxq.cli.steps import claim
from onnxq.report.wrapping import say_aside


@click.command()
@click.argument("module", metavar="MODULE:FACTORY")
@click.option(
    "--weights", type=PATH, help="safetensors, .pt, .pth or .ckpt to load into the module."
)
@click.option(
    "--samples",
    type=PATH,
    help="npz file of example inputs, named as forward's parameters; nested: hidden.0, batch.ids.",
)
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=DTYPE[SHAPE]", help="A random example input."
)
@click.option(
    "--dynamic-axis",
    "axes",
    multiple=True,
    metavar="NAME:AXIS=SIZE",
    help="An axis that is dynamic and what its size is called, as in hidden:1=batch. By default "
    "the batch axis is detected, and --samples are cut to their first rows.",
)
@click.option("--input-name", "input_names", multiple=True, help="Name of an input, in order.")
@click.option("--output-name", "output_names", multiple=True, help="Name of an output, in order.")
@click.option("--opset", type=int, help="18 to 22.")
@output_option
def export(
    module: str,
    weights: Path | None,
    samples: Path | None,
    inputs: tuple[str, ...],
    axes: tuple[str, ...],
    input_names: tuple[str, ...],
    output_names: tuple[str, ...],
    opset: int | None,
    output: Path,
) -> None:
    """Export a PyTorch module to a float ONNX model, and compare the two on its inputs.

    MODULE:FACTORY names a function without arguments that makes the module, as in
    models.resnet:resnet20; the current folder is on the module path.
    """
    if samples is not None and inputs:
        raise click.UsageError("give --samples or --input, not both.")
    claim([output], [p for p in (weights, samples) if p is not None])
    from onnxq import pytorch
    from onnxq.core.brief import size_text
    from onnxq.pytorch.exporting.exporter import DEFAULT_OPSET

    made = pytorch.load_module(module, weights)
    dynamic: dict[str, dict[int, str]] = {}
    for name, axis, size in map(pytorch.parse_axis, axes):
        dynamic.setdefault(name, {})[axis] = size
    if samples is not None:
        arrays = pytorch.read_inputs(samples, None) if axes else pytorch.read_inputs(samples)
        forward = inspect.signature(made.forward).parameters.values()
        needed = [p.name for p in forward if p.default is p.empty]
        is_named = all(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in forward)
        known = {p.name for p in forward}
        lone = next(iter(arrays), "") if len(arrays) == len(needed) == 1 and is_named else ""
        if lone and lone not in known and "." not in lone:  # as `quantize` takes it
            say_aside(f"note: array '{lone}' is taken for '{needed[0]}', the only one needed")
            arrays = {needed[0]: arrays[lone]}
        example: pytorch.Inputs = pytorch.nested_inputs(arrays)
    elif inputs:
        example = pytorch.nested_inputs(dict(pytorch.parse_input(text) for text in inputs))
    else:
        example = pytorch.example_inputs(made)
    model = pytorch.export(
        made,
        example,
        output,
        opset=DEFAULT_OPSET if opset is None else opset,
        input_names=input_names or None,
        output_names=output_names or None,
        dynamic_axes=dynamic or None,
    )
    say_written(
        f"{output}: opset {model.opset_imports['']}, {len(model.graph)} nodes, "
        f"{size_text(output.stat().st_size)}; agrees with the module on its example inputs"
    )

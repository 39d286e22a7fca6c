"""Options of commands that read samples, and the same options written into a command line."""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from onnxq.cli.options import added, numbers, pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxq.samples import Samples

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
    callback=pair,
    help="State: this output of a batch is that input of the next one. May be repeated.",
)


def samples_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --batch-size, --ignore, --feedback, and options that read a folder of images.

    The command gets their values in one argument, `reading`: a Samples whose source is None.
    """
    return _packed(command, (_feedback, image_options, _ignore, _batch_size))


def stateless_samples_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the same options but --feedback, for commands that run each batch alone."""
    return _packed(command, (image_options, _ignore, _batch_size))


def _packed(
    command: Callable[..., None], options: tuple[Callable[..., Any], ...]
) -> Callable[..., None]:
    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        from onnxq.samples import Samples

        how = given.pop("batch_size"), given.pop("ignore"), given.pop("feedback", {})
        command(**given, reading=Samples(None, *how))

    return added(packed, options)


# --- Options that say how a folder of images becomes samples, which several commands share


def image_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --image-size, --image-mean and --image-std to a command.

    Where one of them is given, a folder in the command's `samples` or `check`, or at the end of
    its `paths`, becomes Images.
    """

    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        settings = {name: given.pop(f"image_{name}") for name in ("size", "mean", "std")}
        settings = {name: value for name, value in settings.items() if value is not None}
        if settings:
            for name in ("samples", "check"):
                given |= {name: _images(given[name], settings)} if name in given else {}
            if given.get("paths"):
                *others, last = given["paths"]
                given["paths"] = (*others, _images(last, settings))
        command(**given)

    options = (
        click.option(
            "--image-std",
            metavar="S[,S,S]",
            callback=numbers,
            help="With --image-mean: what x is divided by; default: 1.",
        ),
        click.option(
            "--image-mean",
            metavar="M[,M,M]",
            callback=numbers,
            help="SAMPLES are images: x = (pixel / 255 - mean) / std; default: 0.",
        ),
        click.option(
            "--image-size",
            metavar="HEIGHT,WIDTH",
            callback=_sizes,
            help="SAMPLES are images, cut to this size; default: the model's.",
        ),
    )
    return added(packed, options)


def image_arguments(samples: object) -> list[str]:
    """Command-line options that read these images from a folder; none for other samples."""
    from onnxq.samples.images import Images

    if not isinstance(samples, Images):
        return []
    shown = {"mean": samples.mean, "std": samples.std, "size": samples.size or ()}
    return [
        f"--image-{name}={','.join(f'{number:g}' for number in numbers)}"
        for name, numbers in shown.items()
        if numbers
    ]


def samples_arguments(samples: Samples) -> list[str]:
    """Command-line arguments that read these samples: their path, then the options."""
    assert isinstance(samples.source, os.PathLike)
    return [
        os.fspath(samples.source),
        *([] if samples.batch_size is None else [f"--batch-size={samples.batch_size}"]),
        *(f"--ignore={name}" for name in samples.ignore),
        *(f"--feedback={key}={value}" for key, value in samples.feedback.items()),
        *image_arguments(samples.source),
    ]


def _images(path: Path | None, settings: dict[str, Any]) -> Any:
    """Images of a folder; the path itself where it is none."""
    if path is None or not path.is_dir():
        return path
    from onnxq.samples.images import Images

    return Images(path, **settings)


def _sizes(_ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """(224, 192) of "224,192", and (224, 224) of "224"."""
    if text is None:
        return None
    sizes = [size.strip() for size in text.split(",")]
    if not 1 <= len(sizes) <= 2 or not all(size.isdecimal() and int(size) for size in sizes):
        raise click.BadParameter(f"'{text}': wanted {param.metavar}.", param=param)
    return int(sizes[0]), int(sizes[-1])

"""Options that say how samples are read: one group for every command that reads some."""

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
    """Adds --batch-size, --ignore, --feedback, and options that make images of folders.

    The command gets their values as one, `reading`: Samples without a source.
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

    Where one of them is given, folders among its `samples` and `check`, and the last of its
    `paths`, are Images.
    """

    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        wishes = {name: given.pop(f"image_{name}") for name in ("size", "mean", "std")}
        wishes = {name: value for name, value in wishes.items() if value is not None}
        if wishes:
            for name in ("samples", "check"):
                given |= {name: _images(given[name], wishes)} if name in given else {}
            if given.get("paths"):
                *others, last = given["paths"]
                given["paths"] = (*others, _images(last, wishes))
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


def image_words(samples: object) -> list[str]:
    """The options that make these samples of a folder; none where they are no images."""
    from onnxq.samples.images import Images

    if not isinstance(samples, Images):
        return []
    shown = {"mean": samples.mean, "std": samples.std, "size": samples.size or ()}
    return [
        f"--image-{name}={','.join(f'{number:g}' for number in numbers)}"
        for name, numbers in shown.items()
        if numbers
    ]


def samples_words(samples: Samples) -> list[str]:
    """The argument and the options that have samples of a path read in this way."""
    assert isinstance(samples.source, os.PathLike)
    return [
        os.fspath(samples.source),
        *([] if samples.batch_size is None else [f"--batch-size={samples.batch_size}"]),
        *(f"--ignore={name}" for name in samples.ignore),
        *(f"--feedback={key}={value}" for key, value in samples.feedback.items()),
        *image_words(samples.source),
    ]


def _images(path: Path | None, wishes: dict[str, Any]) -> Any:
    """The folder as Images; another path as it is."""
    if path is None or not path.is_dir():
        return path
    from onnxq.samples.images import Images

    return Images(path, **wishes)


def _sizes(_ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """(224, 192) of "224,192", and (224, 224) of "224"."""
    if text is None:
        return None
    sizes = [size.strip() for size in text.split(",")]
    if not 1 <= len(sizes) <= 2 or not all(size.isdecimal() and int(size) for size in sizes):
        raise click.BadParameter(f"'{text}': wanted {param.metavar}.", param=param)
    return int(sizes[0]), int(sizes[-1])

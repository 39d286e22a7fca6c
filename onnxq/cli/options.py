"""Options that several commands share, and the forms of their values."""

import errno
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any

import click


class Bound(click.FloatRange):
    """A number that something is to keep; NaN, which nothing keeps, is refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail("got nan; wanted a number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        """Text of the range in --help; the empty string where there is none."""
        if self.min is None and self.max is None:
            return ""
        return super()._describe_range()


class _Path(click.Path):
    """A path that the system takes; one too long, or with a zero byte, is wrong usage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        try:
            os.lstat(value)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                self.fail(f"{reprlib.repr(str(value))}: {error.strerror}.", param, ctx)
        except ValueError as error:
            self.fail(f"{reprlib.repr(str(value))}: {error}.", param, ctx)
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)


def added(
    command: Callable[..., None], options: Iterable[Callable[..., Any]]
) -> Callable[..., None]:
    """The command with these options, the last of which its help shows first."""
    for option in options:
        command = option(command)
    return command


def numbers(
    _ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[float, ...] | None:
    """(0.5, 0.25) of "0.5,1/4"."""
    if text is None:
        return None
    try:
        return tuple(float(Fraction(item.strip())) for item in text.split(","))
    except (ValueError, ZeroDivisionError) as error:
        raise click.BadParameter(
            f"'{text}': wanted numbers, as in 0.5,1/255.", param=param
        ) from error


def pair(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """{"left": "right"} of ("left=right",), as the option's metavar shows."""
    pairs = {}
    for text in values:
        left, equals, right = text.partition("=")
        if not (left and equals and right):
            raise click.BadParameter(f"'{text}': wanted {param.metavar}.", param=param)
        pairs[left] = right
    return pairs


def shapes(
    _ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """{"x": (1, 3)} of ("x=1,3",); the sizes of a number are empty: ("sr=",)."""
    found = {}
    for text in values:
        name, equals, sizes = text.partition("=")
        given = [size.strip() for size in sizes.split(",")] if sizes else []
        if not (name and equals and all(size.isdecimal() for size in given)):
            raise click.BadParameter(f"'{text}': wanted {param.metavar}.", param=param)
        found[name] = tuple(map(int, given))
    return found


def names(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    """("left", "right") of "left,right".

    Where a name is missing, as in ",", one is empty: the error that it is not known lists those
    that there are.
    """
    parts = [part.strip() for part in text.split(",")]
    named = tuple(filter(None, parts))
    return named if len(named) == len(parts) or not text.strip() else (*named, "")


def shard(_ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, int]:
    """(0, 4) of "1/4"."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise click.BadParameter(f"'{text}': wanted I/N with 1 <= I <= N, as in 1/4.", param=param)
    return int(index) - 1, int(count)


output_option = click.option("-o", "--output", type=PATH, required=True, help="File to write.")
made_output_option = click.option(
    "-o",
    "--output",
    type=PATH,
    help="File to write; by default MODEL.int8.onnx (.int4, .fp16, ...) here, where there is none.",
)
shape_option = click.option(
    "--shape",
    "given_shapes",
    multiple=True,
    metavar="NAME=SIZE,...",
    callback=shapes,
    help="Sizes of an input, where the model leaves some open. May be repeated.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for programs.")


def _targets(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Names of targets that begin so, for a shell that completes them."""
    from onnxq import targets

    names = [*(t.name for t in targets.all_targets()), *targets.aliases()]
    return [name for name in names if name.startswith(begun)]


def _checked_target(
    _context: click.Context, _param: click.Parameter, value: str | None
) -> str | None:
    """Refuses a target that is not known, before files are looked at."""
    from onnxq import targets

    if value is not None:
        targets.find(value)
    return value


target_option = click.option(
    "--target",
    metavar="NAME",
    callback=_checked_target,
    shell_complete=_targets,
    help="Machine it is for; see `onnxq targets`.",
)
reduce_range_option = click.option(
    "--reduce-range",
    metavar="everywhere|worst-case|observed",
    help="Where weights give up range so that x86 without VNNI computes the same integers: all of "
    "them; channels with pairs of weights that some input takes beyond int16 (the default); or "
    "channels where SAMPLES do, which promises nothing for other inputs.",
)
qconfig_option = click.option("--qconfig", type=PATH, help="YAML file: what to quantize, and how.")
choice_option = click.option(
    "--all-integers",
    "choice",
    flag_value="all_integers",
    help="Every node that can runs in integers; without it, in the precision that is best for it.",
)
objective_option = click.option(
    "--objective",
    default="speed",
    show_default=True,
    metavar="speed|size",
    help="speed leaves in float what would be slower; size stores its weights as int8 then.",
)
dtype_option = click.option(
    "--dtype",
    metavar="qint8|float16",
    help="Of the weights that the qconfig does not name; default: qint8.",
)
costs_option = click.option(
    "--costs",
    type=PATH,
    help="Times of nodes that decide where integers pay, from `onnxq costs`; default: those that "
    "onnxq has of the target.",
)
improve_option = click.option(
    "--improve",
    default="",
    metavar="NAME,...",
    callback=names,
    help="Improvements of weights, each judged on a quarter of SAMPLES: smooth, bias, round ...; "
    "default: those of the qconfig, else auto, which costs nothing at run time.",
)
fast_option = click.option(
    "--fast",
    is_flag=True,
    help="No PTQ algorithms of weights, in half the time: ranges alone come from SAMPLES.",
)
weight_bits_option = click.option(
    "--weight-bits",
    type=int,
    metavar="2|4|8",
    help="Bits of weights of 1024 elements and more, packed in the file, int8 in the session; "
    "default: 8, or those of the qconfig. Below 8, round and bias are the default of --improve.",
)
annotations_option = click.option(
    "--annotations",
    default="dropped",
    show_default=True,
    type=click.Choice(["dropped", "kept"]),
    help="Inferred types of tensors and notes of the exporter, without which the file is smaller.",
)
external_option = click.option(
    "--external-data",
    "inline_bytes",
    flag_value=0,
    type=int,
    help="Write the weights to a file beside the model, which a session maps. Decoders of more "
    "than 100 MB have one anyway.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Of one inference in calibration; default: one per core. They sleep while observers run.",
)
kernel_threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of the reference kernels.",
)


provider_option = click.option(
    "--provider",
    metavar="NAME",
    default="CPUExecutionProvider",
    show_default=True,
    help="Execution provider of ONNX Runtime; the CPU's gets the nodes that it does not take.",
)


def set_option(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --set and --exclude to a command, which gets them as `overrides` of its qconfig."""

    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        excluded = [f"node:{name}=float" for name in given.pop("exclude")]
        command(**given | {"overrides": (*given["overrides"], *excluded)})

    options = (
        click.option(
            "--exclude",
            multiple=True,
            metavar="NODE",
            help="Leave this node in float; a name or a glob, as `onnxq inspect` prints them. May "
            "be repeated.",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="On top of the qconfig: op:Softmax=default, node:/layer1/*=float ... May be "
            "repeated.",
        ),
    )
    return added(packed, options)


def refuse_options(when: str, given: Mapping[str, object]) -> None:
    """Raises a UsageError for an option that was given where it has no meaning."""
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(f"{name} has no meaning {when}.")

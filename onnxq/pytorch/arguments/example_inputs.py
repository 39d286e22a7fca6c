"""Example inputs of a module: where they come from.

`export` traces the module on example inputs and checks the result on them. On the command line they
come from, in this order:

    --samples FILE.npz                    real arrays, named by input
    --input image=float32[4,3,32,32]      random ones, seeded
    --input hidden.0=float32[2,4,32]      first of a tuple; batch.ids: of a dict
    the module or its file                `example_inputs`, or Lightning's `example_input_array`
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, QConfigError, nearest
from onnxq.pytorch.arguments.bound_inputs import Inputs
from onnxq.samples.columns import Column, npz_columns, whole

_SPEC = re.compile(r"(?P<name>\w+(\.\w+)*)=(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]")
_AXIS = re.compile(r"(?P<name>\w+(\.\w+)*):(?P<axis>-?\d+)=(?P<size>\w+)")
_FLOATS = {"float16": torch.float16, "float32": torch.float32}
_INTEGERS = {"int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8, "bool": torch.bool}
_SEED = 0


def example_inputs(module: nn.Module) -> Inputs:
    """Inputs that the module or the file that defines it offers.

    Looked up in this order: `module.example_inputs`, `module.example_input_array` (Lightning's
    name), and `example_inputs` in the Python file that defines the module's class. Each may be a
    tensor, a sequence or a mapping, as `onnxq.export` takes them, or a function without arguments
    that returns one.

    Raises:
        QConfigError: none of these exists.
    """
    file = sys.modules[type(module).__module__]
    for owner, name in (
        (module, "example_inputs"),
        (module, "example_input_array"),
        (file, "example_inputs"),
    ):
        held = getattr(owner, name, None)
        if held is None or held is example_inputs:  # which the file may import
            continue
        found: Inputs | Callable[[], Inputs] = held
        return found() if callable(found) else found
    parameters = list(inspect.signature(module.forward).parameters)
    raise QConfigError(
        f"{type(module).__name__}: no example inputs to trace it with. In Python, pass "
        "inputs=tensors. On the command line name them, as in "
        f"--input '{parameters[0] if parameters else 'x'}=float32[4,3,224,224]', or give real ones "
        f"with --samples FILE.npz. Or define example_inputs() in {type(module).__module__}."
    )


def parse_input(text: str) -> tuple[str, torch.Tensor]:
    """Name and random tensor of "name=dtype[d0,d1,...]": normal floats, integers 0 and 1; seeded.

    Raises:
        QConfigError: text of another form, or an unknown dtype.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise QConfigError(
            f"input '{text}': wanted NAME=DTYPE[SHAPE], as in 'image=float32[4,3,32,32]'."
        )
    name, dtype = match["name"], match["dtype"]
    shape = [int(d) for d in match["shape"].split(",") if d.strip()]
    generator = torch.Generator().manual_seed(_SEED)
    if dtype in _FLOATS:
        return name, torch.randn(shape, generator=generator).to(_FLOATS[dtype])
    if dtype in _INTEGERS:  # 0 and 1 are valid wherever integers index something
        return name, torch.randint(0, 2, shape, generator=generator).to(_INTEGERS[dtype])
    known = [*_FLOATS, *_INTEGERS]
    raise QConfigError(
        f"input '{text}': dtype '{dtype}' is not known; known: {', '.join(known)}."
        f"{nearest(dtype, known)}"
    )


def parse_axis(text: str) -> tuple[str, int, str]:
    """Input, axis and name of its size, of "name:axis=size".

    Raises:
        QConfigError: text of another form.
    """
    match = _AXIS.fullmatch(text.strip())
    if match is None:
        raise QConfigError(f"axis '{text}': wanted NAME:AXIS=SIZE, as in 'hidden:1=batch'.")
    return match["name"].replace(".", "_"), int(match["axis"]), match["size"]


def nested_inputs(tensors: Mapping[str, torch.Tensor]) -> dict[str, object]:
    """Forward's arguments of tensors with dotted names.

    {"x": a, "hidden.0": b, "hidden.1": c, "batch.ids": d} gives
    {"x": a, "hidden": (b, c), "batch": {"ids": d}}.

    Raises:
        QConfigError: positions that do not count from 0; a name that is a tensor and has parts.
    """
    made: dict[str, object] = {}
    for name in dict.fromkeys(name.partition(".")[0] for name in tensors):
        inner = {n.partition(".")[2]: x for n, x in tensors.items() if n.partition(".")[0] == name}
        if "" not in inner:
            made[name] = _tuple_or_dict(name, nested_inputs(inner))
        elif len(inner) == 1:
            made[name] = inner[""]
        else:
            raise QConfigError(f"input '{name}' is a tensor, and has parts too: give one of them.")
    return made


def _tuple_or_dict(name: str, parts: dict[str, object]) -> object:
    if not all(key.isdigit() for key in parts):
        return parts
    wanted = [str(position) for position in range(len(parts))]
    if sorted(parts, key=int) != wanted:
        raise QConfigError(
            f"input '{name}' has the positions {', '.join(parts)}; wanted {', '.join(wanted)}."
        )
    return tuple(parts[key] for key in wanted)


def read_inputs(path: str | Path, samples: int | None = 4) -> dict[str, torch.Tensor]:
    """The first `samples` rows of each array of an npz file, by name; None: whole arrays.

    Raises:
        CalibrationError: not a readable npz file of numbers.
    """
    columns = npz_columns(Path(path), f"samples '{path}'")
    arrays = {name: _first_rows(column, samples) for name, column in columns.items()}
    try:
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    except TypeError as error:
        raise CalibrationError(
            f"samples '{path}': {error} Save arrays of numbers with numpy.savez(path, name=array)."
        ) from error


def _first_rows(column: Column, count: int | None) -> Array:
    if count is None or not column.shape:
        return whole(column)
    with column.open() as reader:
        return reader.rows(min(count, column.shape[0]))

"""Sizes that the inputs of a model are expected to have, where it leaves them open.

Whether integers pay depends on how many rows a MatMul has. Shapes that the user gives come first,
then those of a sample; without either

    the batch, axis 0, and every axis of a cache ("past" or "cache" in the input's name)    1
    inputs beside a cache: a decoder takes one token at a time                              1
    axes 2 and 3 of an image (N, C, H, W)                                                 224
    other axes, such as a sequence's length                                                64
"""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import QConfigError, nearest
from onnxq.graph.walk import value_name
from onnxq.times.model_times import sizes_for

LENGTH, SIDE = 64, 224
MOST = 2**31 - 1
IMAGE_RANK = 4
CACHE_NAMES = ("past", "cache")


def expected_sizes(
    model: ir.Model, given: Mapping[str, Sequence[int]], sample: Mapping[str, Array]
) -> Mapping[str, tuple[int, ...]]:
    """Value name -> its sizes; empty where the model leaves none open."""
    inputs = {value_name(value): value for value in model.graph.inputs}
    for name in given:
        if name not in inputs:
            raise QConfigError(f"shapes: the model has no input '{name}'.{nearest(name, inputs)}")
    declared = {name: _declared(value) for name, value in inputs.items()}
    for name, shape in given.items():
        _check_shape(name, shape, declared[name])
    if not any(None in sizes for sizes in declared.values() if sizes is not None):
        return {}
    steps = any(part in name.lower() for name in inputs for part in CACHE_NAMES)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, sizes in declared.items():
        if name in given:
            shapes[name] = tuple(given[name])
        elif name in sample:
            shapes[name] = sample[name].shape
        elif sizes is not None:
            shapes[name] = tuple(
                _usual(axis, len(sizes), steps=steps) if size is None else size
                for axis, size in enumerate(sizes)
            )
    return sizes_for(model, shapes)


def _check_shape(name: str, shape: Sequence[int], declared: list[int | None] | None) -> None:
    """Passes sizes that the input can have; another rank is found by `sizes_for`."""
    fits = (
        declared is None
        or len(declared) != len(shape)
        or all(size is None or size == wanted for size, wanted in zip(declared, shape, strict=True))
    )
    if not fits or not all(0 < size <= MOST for size in shape):
        wanted = "its own rank" if declared is None else str([size or "open" for size in declared])
        raise QConfigError(f"shapes: '{name}' is {list(shape)}; the model wants {wanted}.")


def _declared(value: ir.Value) -> list[int | None] | None:
    """Sizes of an input, None for an open one; None: its rank is not known."""
    if value.shape is None:
        return None
    return [size if isinstance(size, int) and size >= 0 else None for size in value.shape]


def _usual(axis: int, rank: int, *, steps: bool) -> int:
    if axis == 0 or steps:
        return 1
    return SIDE if rank == IMAGE_RANK and axis > 1 else LENGTH

"""InputSpec says what a model is fed with; checks hold an array against it."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, listed, nearest
from onnxq.graph.quantized import INPUTS_KEY, QuantizedIO, read_quantized_io
from onnxq.page.card import card_of
from onnxq.samples.columns import RAGGED

Batch = dict[str, Array]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model.

    Attributes:
        shape: an int per static dimension, a name or None per dynamic one; None: unknown rank.
        optional: samples may leave it out (state that a model feeds back into itself).
        quantized: numbers that its integers stand for, which samples may hold in their place; of a
            float model, the integers of the quantized one. None: neither.
        is_tensor: whether it is one; False: a sequence or an optional.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | str | None, ...] | None
    optional: bool = False
    quantized: QuantizedIO | None = None
    is_tensor: bool = True

    _repr_html_ = card_of

    @property
    def static_batch(self) -> int | None:
        """Size of the first dimension, where it is static."""
        first = self.shape[0] if self.shape else None
        return first if isinstance(first, int) else None

    def __str__(self) -> str:
        if self.shape is None:
            return f"'{self.name}': {self.dtype} of any shape"
        dims = ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"'{self.name}': {self.dtype} of shape ({dims})"


def input_specs(
    model: ir.Model,
    optional: Collection[str] = (),
    quantized: Mapping[str, QuantizedIO] | None = None,
) -> tuple[InputSpec, ...]:
    """The inputs of a model; initializers that are listed as inputs too are none.

    Args:
        model: float or quantized.
        optional: names of inputs that samples may leave out.
        quantized: of a float model, the inputs that are integers in the quantized one; None: what
            the model's own metadata say.
    Raises:
        ModelError: the metadata were altered.
    """
    known = read_quantized_io(model, INPUTS_KEY) if quantized is None else quantized
    return tuple(
        InputSpec(
            value.name or "",
            np.dtype(value.dtype.numpy() if value.dtype is not None else np.float32),
            _dimensions(value.shape),
            (value.name or "") in optional,
            known.get(value.name or ""),
            value.type is None or isinstance(value.type, ir.TensorType),
        )
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
    )


def _dimensions(shape: ir.Shape | None) -> tuple[int | str | None, ...] | None:
    if shape is None:
        return None
    return tuple(n if isinstance(n, int) else n.value for n in shape)


def by_input(arrays: Mapping[str, T], inputs: Sequence[InputSpec], where: str) -> Mapping[str, T]:
    """The arrays by input; a model's only input takes one array of any name, which is noted."""
    wanted = [spec.name for spec in inputs if not spec.optional]
    if len(wanted) == len(arrays) == 1 and not arrays.keys() & {spec.name for spec in inputs}:
        ((name, array),) = arrays.items()
        warnings.warn(
            f"{where}: array '{name}' is taken for '{wanted[0]}', the model's only input",
            UserWarning,
            stacklevel=2,
        )
        arrays = {wanted[0]: array}
    check_names(arrays, inputs, where)
    return arrays


def check_names(names: Collection[str], inputs: Sequence[InputSpec], where: str) -> None:
    """Refuses arrays that no input is named like, and inputs that have no array."""
    known = [spec.name for spec in inputs]
    for name in (unknown := [each for each in names if each not in known]):
        advice = f"Rename the array, or leave it out with ignore (--ignore {name})"
        if len(unknown) > 1 and not set(known) <= set(names):
            advice = (
                f"Rename the one of {listed(unknown)} that is an input, and leave others out with "
                "ignore (--ignore NAME)"
            )
        raise CalibrationError(
            f"{where}: the model has no input '{name}'; it has {', '.join(known)}."
            f"{nearest(name, known)} {advice}."
        )
    for spec in inputs:
        if spec.name not in names and not spec.optional:
            raise CalibrationError(
                f"{where}: input '{spec.name}' is missing; got {', '.join(names) or 'nothing'}. "
                f"Add an array of that name ({spec})."
            )


def check_tensors(inputs: Sequence[InputSpec], where: str) -> None:
    """Refuses a model with inputs that no array is a sample of."""
    for spec in inputs:
        if not spec.is_tensor and not spec.optional:
            raise CalibrationError(
                f"{where}: input '{spec.name}' is a sequence or an optional, and samples are "
                "arrays. Export the model with tensors as inputs, stacked or one by one; or "
                "quantize it dynamically, without samples."
            )


def only_input(inputs: Sequence[InputSpec], where: str) -> InputSpec:
    """The input that an array without a name is for."""
    wanted = [spec for spec in inputs if not spec.optional]
    if len(wanted) != 1:
        names = ", ".join(spec.name for spec in wanted)
        given = ", ".join(f"{spec.name}=..." for spec in wanted[:2])
        raise CalibrationError(
            f"{where}: one array without a name, for a model with {len(wanted)} inputs ({names}). "
            f"Save them together, named by input: numpy.savez(path, {given})."
        )
    return wanted[0]


def check_dtype(dtype: np.dtype[np.generic], spec: InputSpec, where: str) -> None:
    """Refuses another dtype: a conversion nobody asked for would hide a wrong preprocessing."""
    if dtype == spec.dtype or (spec.dtype.hasobject and dtype.kind in "OU"):  # texts
        return
    if spec.quantized is not None and (dtype.kind == "f" or dtype.name == spec.quantized.dtype):
        return
    floats = np.issubdtype(spec.dtype, np.floating)
    if dtype.hasobject:
        remedy = RAGGED
    elif floats and dtype.kind in "iub":
        remedy = (
            "Preprocess them as in training (scale, normalize), then convert with "
            f".astype(numpy.{spec.dtype})."
        )
        if dtype == np.uint8:
            remedy += f" Or make a model that takes bytes: --quantized-input {spec.name}=pixels."
    else:
        remedy = f"Convert them with .astype(numpy.{spec.dtype})."
    if (dtype.name, spec.dtype.name) == ("float16", "float32"):
        remedy += " onnxq computes float16 models in float32, their inputs included."
    raise CalibrationError(f"{where} is {dtype}; the model wants {spec.dtype}. {remedy}")


def check_shape(shape: Sequence[int], spec: InputSpec, where: str, got: str) -> None:
    """Refuses a batch of another rank, or of another size in a static dimension."""
    if spec.shape is None or _fits(shape, spec.shape):
        return
    raise CalibrationError(
        f"{where} has shape {got}; the model wants {spec}.{_turned(shape, spec)}"
    )


def _fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    return len(shape) == len(wanted) and all(
        size == n for size, n in zip(shape, wanted, strict=True) if isinstance(n, int)
    )


def _turned(shape: Sequence[int], spec: InputSpec) -> str:
    """A sentence on a missing axis of samples, or on channels that stand elsewhere; else empty."""
    assert spec.shape is not None
    if _fits([1, *shape], spec.shape):
        return " It is one sample: array[None] has that shape; give 16 or more."
    if len(shape) < 3:
        return ""
    inner = tuple(range(1, len(shape) - 1))
    for order in ((0, len(shape) - 1, *inner), (0, *(i + 1 for i in inner), 1)):
        if _fits([shape[i] for i in order], spec.shape):
            return f" The channels stand elsewhere: array.transpose{order} has that shape."
    return ""


def check_finite(array: Array, where: str, first: int) -> None:
    """Refuses NaN and Inf, and says in which sample of the array they are."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = np.argwhere(~np.isfinite(array))[0]
    value = array[tuple(place)]
    sample = first + int(place[0]) if place.size else first
    raise CalibrationError(
        f"{where}, sample {sample}: holds {value} at {tuple(int(i) for i in place[1:])}; "
        "wanted finite numbers. Remove the sample or repair it."
    )


def as_taken(batch: Mapping[str, Array], inputs: Sequence[InputSpec]) -> Batch:
    """The batch as a model takes it: quantized inputs as integers or back, floats in its types.

    Args:
        batch: input name -> floats, integers, or the numbers that these stand for.
        inputs: of the model.
    Raises:
        CalibrationError: numbers that stand for no pixels.
    """
    made = dict(batch)
    for spec in inputs:
        array = made.get(spec.name)
        if array is None or array.dtype == spec.dtype:
            continue
        if spec.quantized is None:
            is_float = array.dtype.kind == spec.dtype.kind == "f"
            made[spec.name] = array.astype(spec.dtype) if is_float else array
        elif spec.dtype.kind == "f":
            made[spec.name] = spec.quantized.decode(array).astype(spec.dtype)
        else:
            made[spec.name] = spec.quantized.encode(array, f"samples, input '{spec.name}'")
    return made


def have_batch_axis(inputs: Sequence[InputSpec]) -> bool:
    """False where first dimensions differ: static ones; or layers of a state beside an open one."""
    firsts = {spec.shape[0] for spec in inputs if spec.shape}
    static = {size for size in firsts if isinstance(size, int)}
    return len(static) < 2 and (firsts == static or max(static, default=1) <= 1)


def has_dynamic_batch(inputs: Sequence[InputSpec]) -> bool:
    """Whether every input's first axis is dynamic, and of one name: batches can be cut."""
    firsts = {spec.shape[0] if spec.shape else 0 for spec in inputs}
    return len(firsts) == 1 and not isinstance(next(iter(firsts)), int)


def are_different_axes(firsts: Sequence[tuple[int | str | None, int]]) -> bool:
    """Whether arrays of these first dimensions can only be whole inputs, not samples.

    So it is where lengths differ because the model says that the axes do: x (steps, N, I) beside
    h (1, N, H). Axes without a name, and of one name, may be the batch axis; of these, different
    lengths are a mistake.
    """
    if any(isinstance(wanted, int) and wanted != length for wanted, length in firsts):
        return False
    lengths = {(wanted, length) for wanted, length in firsts if not isinstance(wanted, int)}
    names = {wanted for wanted, _ in lengths}
    unclear = len(names) < len(lengths) or (None in names and len(lengths) > 1)
    return not unclear and len({length for _, length in firsts}) > 1


def batch_of(inputs: Sequence[InputSpec], batch_size: int | None, where: str) -> int:
    """The batch size: as asked, else the model's static batch, else 1."""
    static = {spec.name: spec.static_batch for spec in inputs if spec.static_batch is not None}
    if batch_size is not None and batch_size < 1:
        raise CalibrationError(f"{where}: batch size {batch_size}; wanted 1 or more.")
    sizes = set(static.values())
    if len(sizes) > 1:
        listed = ", ".join(f"'{name}': {size}" for name, size in static.items())
        raise CalibrationError(
            f"{where}: the model's inputs have different static first dimensions ({listed}), so "
            "that they have no batch axis in common. Give whole inputs, one run each: as items of "
            "a list or files of a folder, or stacked along a new first axis."
        )
    if not sizes:
        return batch_size or 1
    size = sizes.pop()
    if not size:
        raise CalibrationError(
            f"{where}: the first size of the model's input '{min(static)}' is 0, so that it takes "
            "no sample. Export the model with a dynamic batch."
        )
    if batch_size not in (None, size):
        raise CalibrationError(
            f"{where}: batch size {batch_size}; the model has a static batch of {size}. Leave the "
            "batch size out, or export the model with a dynamic batch."
        )
    return size


def stack(samples: Sequence[Mapping[str, Array]]) -> Batch:
    """One batch of samples that have no batch axis."""
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}

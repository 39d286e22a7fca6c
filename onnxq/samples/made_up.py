"""Inputs that nobody gave: random numbers to run a model on, or ones to ask it for types."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxq.core.arrays import Array
from onnxq.core.memory import available_bytes
from onnxq.errors import CalibrationError, UnsupportedError, nearest
from onnxq.samples.inputs import Batch, InputSpec

SEED = 0
TEXT = "1"  # which a Cast to numbers reads, too
MOST_BYTES = 1 << 28
"""Bytes of all inputs together."""
SHARE = 0.1
"""Share of the free memory that they may take, too."""
LIKELY_ROWS, LIKELY_TOKENS, LIKELY_IMAGE = 4, 32, 224
"""Sizes of likely inputs, where a model leaves them open."""


def random_batch(inputs: Iterable[InputSpec], batch_size: int | None = None) -> Batch:
    """Normal floats, any integers, zeros elsewhere; dynamic axes are 1, the first is batch_size."""
    shapes = [(spec, _shape(spec, batch_size)) for spec in inputs]
    _check_size(shapes)
    rng = np.random.default_rng(SEED)
    return {spec.name: _random(rng, spec, shape) for spec, shape in shapes}


def likely_batch(inputs: Iterable[InputSpec], config: Mapping[str, object]) -> Batch:
    """Inputs as clients of a transformer give them: tokens, masks of ones, an empty cache."""
    known = {name: v for name, v in config.items() if isinstance(v, int)}
    image, channels = known.get("image_size", LIKELY_IMAGE), known.get("num_channels", 3)
    rng, found = np.random.default_rng(SEED), {}
    for spec in inputs:
        is_past, rank = spec.name.startswith("past"), len(spec.shape or ())
        sizes = [0 if is_past else LIKELY_TOKENS] * rank
        if spec.dtype.kind == "f" and rank == 4 and not is_past:
            sizes = [LIKELY_ROWS, channels, image, image]
        sizes[:1] = [LIKELY_ROWS] * min(rank, 1)
        likely = (
            d if isinstance(d, int) else s for d, s in zip(spec.shape or (), sizes, strict=True)
        )
        shape = _shape(replace(spec, shape=tuple(likely)), None)
        _check_size([(spec, shape)])
        found[spec.name] = _likely(rng, spec, shape, known.get("vocab_size", 1))
    return found


def _likely(
    rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], vocabulary: int
) -> Array:
    if spec.dtype.kind not in "iu" or spec.quantized is not None:
        return _random(rng, spec, shape)
    if "mask" in spec.name:
        return np.ones(shape, spec.dtype)
    if "position" in spec.name and shape:
        return np.broadcast_to(np.arange(shape[-1], dtype=spec.dtype), shape).copy()
    if "type" in spec.name or len(shape) != 2:
        return np.zeros(shape, spec.dtype)
    return rng.integers(0, vocabulary, shape).astype(spec.dtype)


def with_shapes(
    inputs: Sequence[InputSpec], shapes: Mapping[str, Sequence[int]], batch_size: int | None = None
) -> list[InputSpec]:
    """The inputs with the sizes that are given; only the batch may stay dynamic."""
    known = [spec.name for spec in inputs]
    for name in shapes:
        if name not in known:
            raise CalibrationError(
                f"shapes: the model has no input '{name}'; it has {', '.join(known)}."
                f"{nearest(name, known)}"
            )
    made = [_with_shape(s, shapes[s.name]) if s.name in shapes else s for s in inputs]
    tensors = [s for s in made if s.is_tensor]
    fixed = [s.shape is not None and all(isinstance(n, int) for n in s.shape[1:]) for s in tensors]
    open_ones = [s for s, is_fixed in zip(tensors, fixed, strict=True) if not is_fixed]
    if open_ones:
        wished = " ".join(f"--shape {s.name}={_example(s, batch_size)}" for s in open_ones)
        raise CalibrationError(
            f"input {'; '.join(map(str, open_ones))}: sizes that are not fixed decide how long a "
            "run takes. Give SAMPLES, whose first batch is run, or shapes, such as "
            f"{wished} (in Python shapes={{name: sizes}})."
        )
    return made


def _with_shape(spec: InputSpec, shape: Sequence[int]) -> InputSpec:
    wanted = spec.shape
    fits = wanted is None or (
        len(shape) == len(wanted)
        and all(w == g or not isinstance(w, int) for w, g in zip(wanted, shape, strict=True))
    )
    if not fits or any(size < 0 for size in shape):
        raise CalibrationError(f"shapes: got {tuple(shape)}; the model wants {spec}.")
    return replace(spec, shape=tuple(shape))


def _example(spec: InputSpec, batch_size: int | None) -> str:
    """Sizes in the form of --shape: the fixed ones, the batch, and N for the others."""
    if spec.shape is None:
        return "N,N"
    first, *others = spec.shape
    sizes = [first if isinstance(first, int) else batch_size or 1, *others]
    return ",".join(str(size) if isinstance(size, int) else "N" for size in sizes)


def batch_of_ones(inputs: Iterable[InputSpec], first_size: int = 1, others: int = 1) -> Batch:
    """Ones (True for booleans), with these sizes of the first dynamic axis, and of the others."""
    shapes = [(spec, _shape(_with_sizes(spec, first_size, others), None)) for spec in inputs]
    _check_size(shapes)
    return {
        spec.name: _texts(shape) if spec.dtype.hasobject else np.ones(shape, spec.dtype)
        for spec, shape in shapes
    }


def _with_sizes(spec: InputSpec, first: int, others: int) -> InputSpec:
    """The input with these sizes of the first axis that is dynamic, and of the others."""
    sizes = itertools.chain([first], itertools.repeat(others))
    shape = (known if isinstance(known, int) else next(sizes) for known in spec.shape or ())
    return spec if spec.shape is None else replace(spec, shape=tuple(shape))


def _shape(spec: InputSpec, batch_size: int | None) -> tuple[int, ...]:
    if not spec.is_tensor:
        raise UnsupportedError(
            f"input '{spec.name}' is a sequence or an optional; inputs of tensors alone can be "
            "made up."
        )
    shape = [d if isinstance(d, int) else 1 for d in spec.shape or ()]
    if shape and batch_size is not None:
        first = spec.static_batch
        if first not in (None, batch_size):
            raise UnsupportedError(
                f"input '{spec.name}' has a static batch of {first}, so that it cannot run "
                f"{batch_size}. Leave the batch size out, or export a dynamic batch."
            )
        shape[0] = batch_size
    return tuple(shape)


def _check_size(shapes: Sequence[tuple[InputSpec, tuple[int, ...]]]) -> None:
    sizes = {spec.name: math.prod(shape) * spec.dtype.itemsize for spec, shape in shapes}
    free = available_bytes()
    most = MOST_BYTES if free is None else min(MOST_BYTES, int(SHARE * free))
    if sum(sizes.values()) > most:
        name = max(sizes, key=sizes.__getitem__)
        shape = next(shape for spec, shape in shapes if spec.name == name)
        raise UnsupportedError(
            f"input '{name}' of shape {shape} is too large to be made up: {sum(sizes.values())} "
            f"bytes, and {most} may be taken. Give samples, or make sizes that are not fixed "
            "dynamic."
        )


def _random(rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...]) -> Array:
    """Numbers for one input, as `random_batch` says."""
    dtype = np.dtype(spec.dtype)
    if dtype.hasobject:
        return _texts(shape)
    if dtype.kind not in "fiub":
        raise UnsupportedError(f"input '{spec.name}' is of type {dtype}; give samples.")
    if spec.quantized is not None and dtype.kind in "iu":
        limits = np.iinfo(spec.quantized.dtype)
        return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    values = rng.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
    return np.asarray(values.astype(dtype))


def _texts(shape: tuple[int, ...]) -> Array:
    return np.full(shape, TEXT, object)

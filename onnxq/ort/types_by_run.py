"""Types and shapes of values, told by a run where inference does not know them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, LimitError, ModelError, UnsupportedError
from onnxq.ort.cached_attention import with_windows
from onnxq.ort.expose import expose
from onnxq.ort.runtime import Optimization, Session, open_session
from onnxq.samples import input_specs
from onnxq.samples.made_up import batch_of_ones

MOST_SIZES, LARGEST_SIZE, LONGEST = 16, 256, 16
"""Sizes of a batch to try, the largest of them, and elements of a constant that has some."""
LENGTHS = (16, 64, 256, 512, 1024, 4096, 16384)
"""Sizes of other axes to try: windows, strides and paddings of images and audio ask for some."""
MOST_ELEMENTS = 1 << 22
"""Elements of such a batch, at most: 1,024 x 1,024 pixels of four channels."""


def types_by_run(
    model: ir.Model, names: Sequence[str] | None = None, feeds: Mapping[str, Array] | None = None
) -> dict[str, tuple[ir.DataType, tuple[int, ...]]]:
    """Type and shape of the named values, found by one real run: {value name: (dtype, shape)}.

    A run without feeds gets ones (True for booleans), with 1 for each dimension that is not static;
    where the model does not run on these, its constants suggest other sizes of the first, and the
    others get those of LENGTHS. Samples have no say: the canonical form is a function of the model
    alone, as `verify` relies upon.
    A value in a branch of an If that does not run is not in the result.

    The run happens in the child process first, within its bounds.

    `names`: node outputs or graph inputs, in the main graph or in branches of If; None: every
    node output of the main graph. Sequences and optionals are left out.
    """
    if names is None:
        names = [v.name for node in model.graph for v in node.outputs if v.name]
    exposed = expose(model, names)
    with open_session(exposed.model, threads=1, optimization=Optimization.NONE) as session:
        run = session.run(feeds) if feeds is not None else _on_ones(session, model)
        arrays = dict(zip(session.outputs, run, strict=True))
    return {
        name: (ir.DataType.from_numpy(arrays[output].dtype), arrays[output].shape)
        for name, output in exposed.outputs.items()
        if isinstance(arrays[output], np.ndarray)
        and (name == output or arrays[output].shape != (0,))  # (0,): the branch did not run
    }


def _on_ones(session: Session, model: ir.Model) -> Sequence[Array]:
    specs, first = input_specs(model), None
    tried = [*((size, 1) for size in (1, *_suggested_sizes(model))), *((1, n) for n in LENGTHS)]
    failed: set[tuple[tuple[int, ...], ...]] = set()  # shapes
    for sizes in tried:
        try:
            feeds = batch_of_ones(specs, *sizes)
            shapes = tuple(x.shape for x in feeds.values())
            if shapes not in failed and not (
                failed and sum(map(math.prod, shapes)) > MOST_ELEMENTS
            ):
                return session.run(with_windows(model, feeds))
        except (UnsupportedError, LimitError) as error:
            raise ModelError(f"types are not found by a run on inputs of ones: {error}") from error
        except CalibrationError as error:
            first = first or error
            failed.add(shapes)
    raise ModelError(
        "types are not found by a run on inputs of ones, which the model does not take. Run shape "
        "inference first (onnx.shape_inference.infer_shapes), or give the inputs static shapes."
    ) from first


def _suggested_sizes(model: ir.Model) -> list[int]:
    """Sizes of a batch that constants may fix, such as rows of an initial state, smallest first."""
    found: set[int] = set()
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None:
                continue
            found.update(tensor.shape.numpy())
            if tensor.dtype is ir.DataType.INT64 and tensor.size <= LONGEST:
                numbers = tensor.numpy().ravel().tolist()
                found.update((*numbers, sum(numbers)))
    return sorted(n for n in found if 1 < n <= LARGEST_SIZE)[:MOST_SIZES]

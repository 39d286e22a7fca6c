"""Holds ONNX Runtime's integers against the reference kernels, node by node and end to end.

Node by node: the graph that ONNX Runtime runs after its optimizations (fused nodes, other layouts)
is run with every inner tensor visible. Each node that computes on integers gets the inputs that it
really had, on its kernel. End to end: the reference evaluator runs the model file, fused by onnxq.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnxq.checking.cross_findings import CrossFindings
from onnxq.checking.end_to_end import EndToEnd
from onnxq.checking.node_by_node import NodeByNode
from onnxq.checking.visible import Visible, handed_out
from onnxq.core.threads import workers
from onnxq.errors import CalibrationError
from onnxq.graph.checks import weights_alone
from onnxq.graph.io import load, model_hash
from onnxq.graph.weights import hold_as_arrays
from onnxq.ort import runtime
from onnxq.samples import input_specs, open_samples
from onnxq.samples.state import State, as_feedback, check_feedback

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.samples import Samples
    from onnxq.static.prepare import ModelSource

Progress = Callable[[int, int | None], None]
"""Called with (batches done, batches in all or None where that is not known)."""


def cross_check(
    model: ModelSource,
    samples: object,
    *,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    feedback: Mapping[str, str] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> CrossFindings:
    """CrossFindings of a quantized model on samples; bounds are for `CrossFindings.check`.

    One batch is in memory at a time, with all its inner tensors. Weights are there three times: as
    they are (or memory-mapped), and in each of two sessions, packed for their kernels.

    Args:
        model: the quantized model, QDQ or QOperator; path, ModelProto or onnx_ir.Model.
        samples: as `calibrate` takes them.
        batch_size: samples per run; None: the model's static batch, else 1.
        ignore: names of arrays in the samples that are no inputs (labels).
        feedback: {output name: input name} of state; the reference gets ONNX Runtime's.
        threads: of the reference kernels.
        progress: called after each batch.
    Raises:
        ModelError: the model cannot be read, or ONNX Runtime does not accept it.
        CalibrationError: unusable samples.
        QConfigError: a feedback that the model does not have, or fewer than 1 thread.
    """
    target = load(model)
    if target is model:
        target = target.clone()  # the caller's weights stay as they are
    hold_as_arrays(target)  # two sessions and the reference read them
    state = as_feedback(feedback)
    check_feedback(target, state)
    inputs = input_specs(target, state.values())
    batches = open_samples(samples, inputs, batch_size, ignore)
    with workers(threads):
        nodes = NodeByNode(target)
        whole = EndToEnd(target, threads)
        count = _over(target, batches, State(inputs, state), nodes, whole, progress)
    return CrossFindings(
        model_hash(target),
        count,
        nodes.findings(),
        nodes.unchecked(),
        nodes.floats(),
        tuple(nodes.instrumented),
        whole.outputs(),
        whole.first_difference,
        whole.problem,
        weights_alone(target),
    )


def _over(
    target: ir.Model,
    samples: Samples,
    state: State,
    nodes: NodeByNode,
    whole: EndToEnd,
    progress: Progress | None,
) -> int:
    """Number of batches run; `nodes` and `whole` hold the counts.

    Both sessions have one thread, so that float kernels add in the same order.
    """
    done = 0
    plain = runtime.open_session(target, threads=1)
    visible = Visible(nodes.exposed)
    names = handed_out(plain)
    odd = set(plain.outputs) - set(names)
    with plain, visible.session:
        for batch in samples:
            feeds = state.feeds(batch)
            wanted = dict(zip(names, plain.run(feeds, names), strict=True))
            state.keep(wanted)
            outputs, inner = visible.run(feeds)
            nodes.note_instrumented(wanted, outputs)
            wanted |= {name: x for name in odd if isinstance(x := inner.get(name), np.ndarray)}
            if whole.differs(feeds, wanted):
                whole.explain(feeds, wanted, nodes.results(inner))
            nodes.compare(feeds, inner)
            done += 1
            if progress is not None:
                progress(done, samples.count)
    if not done:
        raise CalibrationError(f"{samples.where} hold no batch; give at least one sample.")
    return done

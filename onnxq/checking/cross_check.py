"""Holds ONNX Runtime's integers against the reference kernels, node by node and end to end.

Node by node: the graph that ONNX Runtime runs after its optimizations (fused nodes, other layouts)
is run with every inner tensor visible. Each node that computes on integers gets the inputs that it
really had, on its kernel. End to end: the reference evaluator runs the model file, fused by onnxq.
Both add products as this machine does: without VNNI, x86 adds pairs in int16, which saturates.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxq.checking.cross_findings import CrossFindings
from onnxq.checking.end_to_end import EndCounts, EndToEnd
from onnxq.checking.node_by_node import GraphCounts, NodeByNode
from onnxq.checking.visible import Visible, handed_out
from onnxq.core.threads import workers
from onnxq.graph.checks import weights_alone
from onnxq.graph.io import load, model_hash
from onnxq.graph.portable import PortableModel
from onnxq.graph.weights import hold_as_arrays
from onnxq.ort import runtime
from onnxq.ort.runtime import HoldsSessions
from onnxq.ort.target_here import target_here
from onnxq.qdq.narrow import unpacked
from onnxq.samples import Samples, input_specs, open_samples
from onnxq.samples.ignored import check_ignored
from onnxq.samples.inputs import Batch
from onnxq.samples.shared_out import over_batches, without_state
from onnxq.samples.state import State, check_feedback
from onnxq.static.arguments import check_progress
from onnxq.static.calibrate import Progress
from onnxq.static.prepared import ModelSource


def cross_check(
    model: ModelSource,
    samples: object,
    *,
    threads: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> CrossFindings:
    """CrossFindings of a quantized model on samples; bounds are for `CrossFindings.check`.

    One batch is in memory at a time, with all its inner tensors. Weights are there three times: as
    they are (or memory-mapped), and in each of two sessions, packed for their kernels.

    Args:
        model: the quantized model, QDQ or QOperator; path, ModelProto or onnx_ir.Model.
        samples: as `calibrate` takes them; with feedback, the reference gets ONNX Runtime's state.
        threads: of the reference kernels.
        progress: called after each batch.
        executor: whose workers compare; None: this process. The findings are the same. Workers of
            another kind of machine are refused, as ONNX Runtime makes another graph there. Batches
            with state run here, one after the other.
    Raises:
        ModelError: the model cannot be read, or ONNX Runtime does not accept it.
        CalibrationError: unusable samples.
        QConfigError: a feedback that the model does not have, or fewer than 1 thread.
    """
    check_progress(progress)
    loaded = load(model)
    held = _held(loaded)
    target = unpacked(held)
    given = Samples.of(samples)
    state = given.feedback
    check_feedback(target, state)
    batches = open_samples(given, input_specs(target, state.values()))
    check_ignored(given)
    chosen = without_state(executor, state)
    count = 0
    with _Comparing(target, state, threads) as run:
        away = run.open
        if chosen is not None:
            away = partial(_opened, PortableModel.of(model, loaded), threads)
        for found in over_batches(chosen, run.open, away, batches, progress):
            run.nodes.add(found.nodes)
            run.whole.counts.add(found.whole)
            count += 1
    nodes, whole = run.nodes, run.whole
    return CrossFindings(
        model_hash(held),
        count,
        nodes.findings(),
        nodes.unchecked(),
        nodes.floats(),
        tuple(nodes.instrumented),
        whole.outputs(),
        whole.counts.first_difference,
        whole.counts.problem,
        weights_alone(target),
        target_here().name,
    )


def _held(model: ir.Model) -> ir.Model:
    """A copy with its weights as arrays: two sessions, the reference and the hash read them."""
    held = model.clone()  # the caller's weights stay as they are
    hold_as_arrays(held)
    return held


@dataclass(frozen=True, slots=True)
class _Found:
    """Counts of one batch."""

    nodes: GraphCounts
    whole: EndCounts


def _opened(model: PortableModel, threads: int) -> Callable[[Batch], _Found]:
    """Work of a worker: a model under comparison, opened there."""
    return _Comparing(unpacked(_held(model.load())), {}, threads).open()


class _Comparing(HoldsSessions):
    """A model under comparison."""

    def __init__(self, target: ir.Model, feedback: Mapping[str, str], threads: int) -> None:
        self._target, self._threads = target, threads
        self._state = State(input_specs(target, feedback.values()), feedback)
        with workers(threads):
            saturation_mode = target_here().saturation_mode
            self.nodes = NodeByNode(target, saturation_mode)
            self.whole = EndToEnd(target, threads, saturation_mode)

    def open(self) -> Callable[[Batch], _Found]:
        """Makes it ready to run; the function of a batch, which takes what was found so far.

        Both sessions have one thread, so that float kernels add in the same order.
        """
        plain = runtime.open_session(self._target, threads=1)
        self._sessions = (plain,)  # the second may be refused
        visible = Visible(self.nodes.exposed)
        self._sessions += (visible.session,)
        names = handed_out(plain)
        odd = set(plain.outputs) - set(names)

        def compare(batch: Batch) -> _Found:
            feeds = self._state.feeds(batch)
            wanted = plain.run_named(feeds, names)
            self._state.keep(wanted)
            outputs, inner = visible.run(feeds)
            self.nodes.note_instrumented(wanted, outputs)
            wanted |= {name: x for name in odd if isinstance(x := inner.get(name), np.ndarray)}
            with workers(self._threads):
                if self.whole.differs(feeds, wanted):
                    self.whole.explain(feeds, wanted, self.nodes.results(inner))
                self.nodes.compare(feeds, inner)
            return _Found(self.nodes.take(), self.whole.take())

        return compare

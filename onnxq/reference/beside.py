"""A model run exactly and, beside that, as other machines: what agrees is computed once.

A machine's run parts from the exact one at a node whose sums it adds otherwise, and joins it again
where the results are the same. Between, its tensors are kept beside the exact ones; elsewhere they
are the same arrays.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference.op_run import OpRun

from onnxq.core.threads import workers
from onnxq.operator import Array
from onnxq.reference.elsewhere import FloatNodes
from onnxq.reference.evaluation import Evaluator, check_imported, run_node
from onnxq.reference.ops import Hear, KernelOp, on_machine
from onnxq.reference.session import integer_evaluator
from onnxq.targets.accumulation import SaturationMode

Seen = Callable[[str, Any, Any], None]
"""Is shown (name, a machine's result, the exact one) of each node; the same object for both where
they agree."""
Values = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A machine to be run beside the exact arithmetic.

    Attributes:
        risky: names of the first outputs of the nodes that may compute otherwise; bodies included.
        hear: is called with each node and the pairs of its products that left int16.
        seen: looks at every result of the main graph's nodes.
    """

    saturation_mode: SaturationMode
    risky: Collection[str]
    hear: Hear
    seen: Seen


class Evaluators:
    """Evaluators of one model, the exact one and those of other machines.

    Args:
        integer: a model on integers (onnxq.reference.integer_form).
        machines: to be run beside.
        threads: that convolutions and MatMuls use.
        float_nodes: as `onnxq.reference.evaluator` takes it.
    Raises:
        UnsupportedError: operators that the reference cannot run.
    """

    def __init__(
        self,
        integer: ir.Model,
        machines: Sequence[Beside],
        *,
        threads: int = 1,
        float_nodes: FloatNodes | None = None,
    ) -> None:
        self._exact = integer_evaluator(integer, threads=threads, float_nodes=float_nodes)
        self._threads = threads
        self._machines = machines
        tops = _risky_nodes(integer, machines)
        self._nodes = [
            _own_nodes(self._exact, machine, places)
            for machine, places in zip(machines, tops, strict=True)
        ]
        for machine, places, nodes in zip(machines, tops, self._nodes, strict=True):
            if len(nodes) < len(places):  # the others hold graphs with such nodes
                evaluator = integer_evaluator(
                    integer,
                    threads=threads,
                    float_nodes=float_nodes,
                    saturation_mode=machine.saturation_mode,
                    hear=machine.hear,
                )
                nodes.update((i, evaluator.rt_nodes_[i]) for i in places)

    def run(
        self,
        names: Sequence[str],
        feeds: Mapping[str, Array],
        others: Sequence[Mapping[str, Array]],
    ) -> tuple[Values, list[Values]]:
        """(outputs by name of the exact run, those of each machine).

        Args:
            names: of outputs.
            feeds: inputs of the exact run.
            others: inputs of each machine, which differ where state goes round.
        Raises:
            CalibrationError: an input is missing, unknown, or of another type or shape.
            ShapeError, UnsupportedError: as the nodes raise them.
        """
        for each in (feeds, *others):
            self._exact.check_feeds(each)
        with workers(self._threads):
            return self._run(names, feeds, others)

    def _run(
        self,
        names: Sequence[str],
        feeds: Mapping[str, Array],
        others: Sequence[Mapping[str, Array]],
    ) -> tuple[Values, list[Values]]:
        exact = self._exact
        results: Values = {"": None, **exact.rt_inits_, **feeds}
        own: list[Values] = [
            {n: x for n, x in other.items() if n not in feeds or not _agree(x, feeds[n])}
            for other in others
        ]
        kept, last = set(results), exact.last_readers(names)
        for i, node in enumerate(exact.rt_nodes_):
            outputs = _outputs(node, results)
            for machine, nodes, values in zip(self._machines, self._nodes, own, strict=True):
                theirs = outputs
                if i in nodes or not values.keys().isdisjoint(exact.reads[i]):
                    theirs = _outputs(nodes.get(i, node), {**results, **values})
                for name, got, wanted in zip(node.output, theirs, outputs, strict=False):
                    same = _agree(got, wanted)
                    if name and not same:
                        values[name] = got
                    machine.seen(name, wanted if same else got, wanted)
            results.update(zip(node.output, outputs, strict=False))
            results[""] = None  # an output without a name is no input of anyone
            for name in (*exact.reads[i], *node.output):
                if last.get(name, -1) > i:
                    continue
                for values in own:
                    values.pop(name, None)
                if name not in kept:
                    results.pop(name, None)
        wanted = {name: results[name] for name in names}
        return wanted, [{n: values.get(n, x) for n, x in wanted.items()} for values in own]


def _risky_nodes(integer: ir.Model, machines: Sequence[Beside]) -> list[list[int]]:
    """For each machine, the places of the main graph's nodes that may compute otherwise."""
    places: list[list[int]] = [[] for _ in machines]
    for i, node in enumerate(integer.graph):
        inside = [
            inner
            for a in node.attributes.values()
            if a.type.name == "GRAPH"
            for inner in a.as_graph().all_nodes()
        ]
        names = {str(n.outputs[0].name) for n in (node, *inside) if n.outputs}
        for found, machine in zip(places, machines, strict=True):
            if not names.isdisjoint(machine.risky):
                found.append(i)
    return places


def _own_nodes(exact: Evaluator, machine: Beside, places: Sequence[int]) -> dict[int, OpRun]:
    """Place -> node that runs as the machine, of those places whose node is no If, Loop or Scan."""
    classes = on_machine(machine.saturation_mode, machine.hear)
    nodes = {i: exact.rt_nodes_[i] for i in places}
    return {
        i: classes[node.onnx_node.domain, node.op_type](node.onnx_node, node.run_params)
        for i, node in nodes.items()
        if isinstance(node, KernelOp)
    }


def _outputs(node: OpRun, values: Values) -> tuple[Any, ...]:
    extra = {"context": values} if node.need_context() else {}
    outputs = run_node(node, [values[name] for name in node.input], extra)
    check_imported(node, outputs)
    return outputs


def _agree(x: object, y: object) -> bool:
    """Whether whatever is computed from x is what is computed from y: bits, not numbers."""
    if x is y:
        return True
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return False
    if x.dtype != y.dtype or x.shape != y.shape or x.dtype.hasobject:
        return False
    if x.dtype.kind in "iub":
        return np.array_equal(x, y)
    return x.tobytes() == y.tobytes()

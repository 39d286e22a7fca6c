"""Time of a model whose nodes take given forms, from the times of each of its nodes.

    time(forms) = sum over nodes of their time in their form
                + sum over tensors of the changes between their producer and their readers
                + what belongs to no node

It is `predict_time` of onnxq.costs.model_time with times of this model's own nodes in place of a
table's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxq.costs.model_time import FLOATS, TensorState, changes_between
from onnxq.costs.node_layouts import layout_of
from onnxq.costs.work import moving
from onnxq.graph.portable import PortableModel
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Precision
from onnxq.static.placing.decision import Quantize
from onnxq.tuning.timing.attribution import READS_CODES
from onnxq.tuning.timing.run_sizes import every_size

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from onnxq.graph.sizes import Sizes
    from onnxq.static.plan import Plan
    from onnxq.tuning.timing.times import NodeTimes, Times


Forms = Mapping[str, Precision | None]
"""Name of a node -> its form; FLOAT where it is not named; None: the node ahead computes it too."""


def forms_of(plan: Plan) -> dict[str, Precision | None]:
    """The forms of a plan's nodes.

    Args:
        plan: of a quantized model.
    """
    inside = {
        name
        for name, decision in plan.decisions.items()
        if isinstance(decision, Quantize) and decision.folded_into
    }
    return {n: None if n in inside else choice.precision for n, choice in plan.choices.items()}


def form_ahead(node: ir.Node, forms: Forms) -> Precision:
    """Form of the first node ahead that computes in integers; FLOAT where none does."""
    makers = (value.producer() for value in moving(node))
    found = (forms.get(node_name(maker), Precision.FLOAT) for maker in makers if maker is not None)
    coded = (form for form in found if form is not None and form not in IN_FLOAT)
    return next(coded, Precision.FLOAT)


IN_FLOAT = tuple(precision for precision in Precision if precision.runs_in_float)
"""Forms that run the float model's kernels."""


class TimeModel:
    """Predicted times of one model.

    Args:
        times: of its nodes.
        model: the float model, as prepared. Nodes in bodies take their own conversions along.
    """

    def __init__(self, times: Times, model: ir.Model) -> None:
        self.times = times
        self._model = model
        self._nodes = list(model.graph)
        self._inputs = list(model.graph.inputs)
        self._outputs = list(model.graph.outputs)
        self._sizes: Mapping[str, Sizes] = every_size(model, times.shapes)
        self._others = sum(times.others.values())
        named = {node_name(node) for node in self._nodes}
        self._inner = {name: each for name, each in times.nodes.items() if name not in named}

    def __reduce__(self) -> tuple[Callable[..., TimeModel], tuple[object, ...]]:
        """Pickles with the bytes of its model, whose nodes may hold tensors that are computed.

        Raises:
            ModelError: the model is too large for protobuf; tune it in one process.
        """
        return _restored, (self.times, PortableModel.of(self._model, self._model))

    def ratio(self, forms: Forms) -> float | None:
        """Predicted time over the float model's; None where it has no time at all.

        Args:
            forms: of the nodes, as `forms_of` gives those of a plan.
        """
        return self.ns(forms) / self.times.float_ns if self.times.float_ns > 0 else None

    def ns(self, forms: Forms) -> float:
        """Predicted nanoseconds of one run; arguments as of `ratio`."""
        states: dict[ir.Value, TensorState] = dict.fromkeys(self._inputs, FLOATS)
        needs: dict[ir.Value, set[TensorState]] = {value: {FLOATS} for value in self._outputs}
        total = self._others + sum(_within(*each, forms) for each in self._inner.items())
        for node in self._nodes:
            form = forms.get(node_name(node), Precision.FLOAT)
            ahead = [states.get(value, FLOATS) for value in moving(node)]
            if form is None:
                states.update(dict.fromkeys(node.outputs, ahead[0] if ahead else FLOATS))
                continue
            layouts = [state.layout for state in ahead]
            reads, writes = layout_of(node, form, layouts, self._sizes)
            for value in moving(node):
                needs.setdefault(value, set()).add(TensorState(form in READS_CODES, reads))
            result = TensorState(form is Precision.INT8, writes)
            states.update(dict.fromkeys(node.outputs, result))
            total += self._node(node, form, forms)
        return total + sum(
            self._changing(value, state, needs[value])
            for value, state in states.items()
            if value in needs
        )

    def _node(self, node: ir.Node, form: Precision, forms: Forms) -> float:
        """Time in that form, else in float with conversions on both sides, where it reads codes."""
        known = self.times.nodes.get(node_name(node))
        if known is None:
            return 0.0
        if form in IN_FLOAT:
            return known.of_float(form_ahead(node, forms))
        found = known.of(form)
        if found is not None:
            return found
        floats = known.of(Precision.FLOAT) or 0.0
        if form is not Precision.INT8:
            return floats
        ends = [("dequantize", value) for value in moving(node)]
        ends += [("quantize", value) for value in node.outputs]
        return floats + sum(self._change(change, value) for change, value in ends)

    def _changing(self, value: ir.Value, state: TensorState, needs: set[TensorState]) -> float:
        return sum(self._change(each.value, value) for each in changes_between(state, needs))

    def _change(self, change: str, value: ir.Value) -> float:
        shape = self._sizes.get(value_name(value))
        time = self.times.changes.get(change)
        return 0.0 if shape is None or time is None else time.ns(math.prod(shape))


def _within(name: str, known: NodeTimes, forms: Forms) -> float:
    """Time of a node in a body, with the conversions that it needed where it was measured."""
    form = forms.get(name, Precision.FLOAT)
    if form is None:
        return 0.0
    measured = form if known.of(form) is not None else Precision.FLOAT
    return (known.of(measured) or 0.0) + known.around.get(measured.value, 0.0)


def _restored(times: Times, model: PortableModel) -> TimeModel:
    """The TimeModel whose parts `__reduce__` gave."""
    return TimeModel(times, model.load())

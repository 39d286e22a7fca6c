"""Says on which machines a quantized model's integers differ, without having the machines.

The reference runs the model exactly, and once for each kind of arithmetic among the machines whose
pairs of products may not fit int16 (see onnxq.arithmetic). Without samples, the weights alone say
which layers can differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnxq import reference, targets
from onnxq.arithmetic import Arithmetic
from onnxq.errors import CalibrationError
from onnxq.graph import kernels
from onnxq.graph.io import load, model_hash
from onnxq.samples import input_specs, open_samples
from onnxq.stages.end_to_end import EXACT_ON_FLOATS, output_differences
from onnxq.stages.float_nodes import FloatNodes
from onnxq.stages.layer_overflows import Layer, find_layers
from onnxq.stages.prediction import MachinePrediction, OutputPrediction, Prediction
from onnxq.stages.state import State, check_feedback

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx
    import onnx_ir as ir

    from onnxq.arithmetic import Overflows
    from onnxq.samples import Samples
    from onnxq.stages.differences import Differences
    from onnxq.stages.prepare import ModelSource
    from onnxq.targets import Target

    Array = npt.NDArray[np.generic]

Progress = Callable[[int, int | None], None]
"""Called with (batches done, batches in all or None where that is not known)."""

ALL = "all"
"""Every target that is a machine."""
PORTABLE = "portable"
ROUNDING_OPS = frozenset({"DynamicQuantizeLSTM", "MatMulNBits"})
"""Operators on codes that compute floats too, in an order or with functions of the machine's."""


def predict(
    model: ModelSource,
    samples: object = None,
    machines: str | Target | Iterable[str | Target] = ALL,
    *,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    feedback: Mapping[str, str] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Prediction:
    """Prediction of a quantized model, on samples or from its weights alone.

    Args:
        model: the quantized model, QDQ or QOperator; path, ModelProto or onnx_ir.Model.
        samples: as `calibrate` takes them; None: the weights alone.
        machines: targets or their names; "all" and "portable": every machine.
        batch_size: samples per run; None: the model's static batch, else 1.
        ignore: names of arrays in the samples that are no inputs (labels).
        feedback: {output name: input name} of state; each machine gets its own.
        threads: of the reference kernels.
        progress: called after each batch.
    Raises:
        ModelError: the model cannot be read.
        CalibrationError: unusable samples.
        QConfigError: an unknown target, a feedback that the model does not have, or fewer than 1
            thread.
        UnsupportedError: operators that the reference cannot run.
    """
    target = load(model)
    state = dict(feedback or {})
    check_feedback(target, state)
    integer = reference.integer_form(target)
    kinds = [_Machine(target, integer, *kind, threads) for kind in _kinds(machines)]
    count = 0
    if samples is not None:
        inputs = input_specs(target, state.values())
        batches = open_samples(samples, inputs, batch_size, ignore)
        exact = _evaluator(target, integer, threads)
        for machine in kinds:
            machine.open(State(inputs, state))
        count = _over(batches, exact, State(inputs, state), kinds, progress)
    return Prediction(
        model_hash(target), count, tuple(kind.result() for kind in kinds), _floats(integer)
    )


def _over(
    samples: Samples,
    exact: reference.Evaluator,
    state: State,
    kinds: list[_Machine],
    progress: Progress | None,
) -> int:
    """Number of batches run; the machines hold the counts."""
    done = 0
    names = list(dict.fromkeys(name for machine in kinds for name in machine.compared))
    for batch in samples:
        feeds = state.feeds(batch)
        wanted = _values(exact, feeds, names)
        state.keep(wanted)
        for machine in kinds:
            machine.compare(batch, wanted, names)
        done += 1
        if progress is not None:
            progress(done, samples.count)
    if not done:
        raise CalibrationError(f"{samples.where} hold no batch; give at least one sample.")
    return done


def _values(
    evaluator: reference.Evaluator, feeds: Mapping[str, Array], names: list[str]
) -> dict[str, Array]:
    """The tensors of those names; others are given back as the model runs."""
    return dict(zip(names, evaluator.run(names, feeds), strict=True))


def _evaluator(
    target: ir.Model,
    integer: ir.Model,
    threads: int,
    arithmetic: Arithmetic = Arithmetic.EXACT,
    hear: reference.Hear | None = None,
) -> reference.Evaluator:
    return reference.integer_evaluator(
        integer,
        threads=threads,
        float_nodes=FloatNodes(target),
        arithmetic=arithmetic,
        hear=hear,
    )


def _kinds(
    machines: str | Target | Iterable[str | Target],
) -> list[tuple[Arithmetic, tuple[str, ...]]]:
    """Arithmetic -> names of the targets that have it, in the order of `all_targets`."""
    given = [machines] if isinstance(machines, str | targets.Target) else list(machines)
    found: dict[Arithmetic, dict[str, None]] = {}
    for item in given:
        every = str(item) in (ALL, PORTABLE)
        for target in targets.all_targets() if every else (targets.resolve(item),):
            if target.name != PORTABLE:
                found.setdefault(target.arithmetic, {})[target.name] = None
    return [(kind, tuple(found[kind])) for kind in Arithmetic if kind in found]


def _floats(integer: ir.Model) -> dict[str, int]:
    uses = kernels.integer_nodes(integer)
    float_nodes = [
        use.op_type
        for use in uses
        if use.op_type in ROUNDING_OPS
        or (use.arithmetic is kernels.Arithmetic.FLOAT and use.op_type not in EXACT_ON_FLOATS)
    ]
    return dict(Counter(float_nodes).most_common())


class _Machine:
    """One kind of arithmetic beside exact integers."""

    def __init__(
        self,
        target: ir.Model,
        integer: ir.Model,
        arithmetic: Arithmetic,
        names: tuple[str, ...],
        threads: int,
    ) -> None:
        self._target, self._integer, self._threads = target, integer, threads
        self._arithmetic, self._names = arithmetic, names
        self._layers: dict[str, Layer] = find_layers(integer, arithmetic)
        self._outputs: dict[str, Differences] = {}
        self._graph_outputs = [str(value.name) for value in target.graph.outputs]
        self._evaluator: reference.Evaluator | None = None
        self._state: State | None = None

    def open(self, state: State) -> None:
        """Makes it ready to run; where no pair of weights can overflow, it is exact."""
        self._outputs = {
            str(value.name): output_differences(value) for value in self._target.graph.outputs
        }
        if all(layer.possible == 0 for layer in self._layers.values()):
            return
        self._state = state
        self._evaluator = _evaluator(
            self._target, self._integer, self._threads, self._arithmetic, self._hear
        )

    def _hear(self, node: onnx.NodeProto, found: Overflows) -> None:
        self._layers[node.output[0]].hear(found)

    @property
    def compared(self) -> list[str]:
        """Names of the tensors that are held against exact ones; those in bodies are not seen."""
        visible = {str(value.name) for node in self._integer.graph for value in node.outputs}
        results = [name for layer in self._layers.values() for name in layer.outputs]
        return [*self._graph_outputs, *(name for name in results if name in visible)]

    def compare(
        self, batch: Mapping[str, Array], wanted: Mapping[str, Array], names: list[str]
    ) -> None:
        """Runs one batch."""
        got = wanted
        if self._evaluator is not None and self._state is not None:
            got = _values(self._evaluator, self._state.feeds(batch), names)
            self._state.keep(got)
        for layer in self._layers.values():
            layer.compare(got, wanted)
        for name, sums in self._outputs.items():
            theirs = wanted[name]
            if isinstance(theirs, np.ndarray):
                sums.update(got[name], theirs)

    def result(self) -> MachinePrediction:
        return MachinePrediction(
            self._names,
            self._arithmetic.value,
            tuple(layer.result() for layer in self._layers.values()),
            tuple(
                OutputPrediction(name, sums.elements, sums.differing, sums.largest, sums.unit)
                for name, sums in self._outputs.items()
            ),
        )

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
import onnx_ir as ir

from onnxq import reference, targets
from onnxq.arithmetic import Arithmetic
from onnxq.errors import CalibrationError, QConfigError
from onnxq.graph import kernels
from onnxq.graph.io import load, model_hash
from onnxq.graph.weights import constant
from onnxq.samples import input_specs, open_samples
from onnxq.stages.end_to_end import EXACT_ON_FLOATS, output_differences
from onnxq.stages.float_nodes import FloatNodes
from onnxq.stages.layer_overflows import Layer, find_layers
from onnxq.stages.prediction import MachinePrediction, OutputPrediction, Prediction
from onnxq.stages.state import State, check_feedback

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx

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
    usual = _Form(target, reference.integer_form(target), threads)
    arm = usual
    if _has_int8_activations(target):
        arm = _Form(target, reference.integer_form(target, Arithmetic.WRAPS), threads)
    kinds = [
        _Machine(arm if kind.fixed_point else usual, kind, names)
        for kind, names in _kinds(machines)
    ]
    count = 0
    if samples is not None:
        inputs = input_specs(target, state.values())
        batches = open_samples(samples, inputs, batch_size, ignore)
        for machine in kinds:
            machine.open(State(inputs, state))
        count = _over(batches, usual, State(inputs, state), kinds, progress)
    return Prediction(
        model_hash(target), count, tuple(kind.result() for kind in kinds), _floats(usual.integer)
    )


def _over(
    samples: Samples,
    usual: _Form,
    state: State,
    kinds: list[_Machine],
    progress: Progress | None,
) -> int:
    """Number of batches run; the machines hold the counts."""
    done = 0
    forms = dict.fromkeys([usual, *(machine.form for machine in kinds)])
    exact = {form: form.evaluator() for form in forms}
    for batch in samples:
        feeds = state.feeds(batch)
        wanted = {form: form.run(exact[form], feeds) for form in forms}
        state.keep(wanted[usual])
        for machine in kinds:
            machine.compare(batch, wanted[machine.form], wanted[usual])
        done += 1
        if progress is not None:
            progress(done, samples.count)
    if not done:
        raise CalibrationError(f"{samples.where} hold no batch; give at least one sample.")
    return done


class _Form:
    """The model as a machine runs it after loading.

    Attributes:
        target: the model.
        integer: its integer form.
    """

    def __init__(self, target: ir.Model, integer: ir.Model, threads: int) -> None:
        self.target, self.integer, self._threads = target, integer, threads
        # those in bodies are not seen
        self._visible = [str(v.name) for node in integer.graph for v in node.outputs if v.name]
        self._names = dict.fromkeys(str(value.name) for value in target.graph.outputs)

    def watch(self, names: Iterable[str]) -> None:
        """Makes `run` return these tensors too, where they are not in a body."""
        self._names |= dict.fromkeys(name for name in names if name in self._visible)

    def evaluator(
        self, arithmetic: Arithmetic = Arithmetic.EXACT, hear: reference.Hear | None = None
    ) -> reference.Evaluator:
        """Of a machine that adds so."""
        return reference.integer_evaluator(
            self.integer,
            threads=self._threads,
            float_nodes=FloatNodes(self.target),
            arithmetic=arithmetic,
            hear=hear,
        )

    def run(self, evaluator: reference.Evaluator, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs and watched tensors; others are given back as the model runs."""
        names = list(self._names)
        return dict(zip(names, evaluator.run(names, feeds), strict=True))


def _has_int8_activations(target: ir.Model) -> bool:
    """Whether x86 and ARM may run the model in different forms."""
    zeros = (
        constant(node.inputs[2])
        for node in target.graph.all_nodes()
        if node.op_type == "QuantizeLinear" and len(node.inputs) > 2
    )
    return any(zero is not None and zero.dtype == ir.DataType.INT8 for zero in zeros)


def _kinds(
    machines: str | Target | Iterable[str | Target],
) -> list[tuple[Arithmetic, tuple[str, ...]]]:
    """Arithmetic -> names of the targets that have it, in the order of `all_targets`."""
    given = [machines] if isinstance(machines, str | targets.Target) else list(machines)
    found: dict[Arithmetic, dict[str, None]] = {}
    for item in given:
        every = str(item) in (ALL, PORTABLE)
        for target in targets.all_targets() if every else (_named(item),):
            if target.name != PORTABLE:
                found.setdefault(target.arithmetic, {})[target.name] = None
    return [(kind, tuple(found[kind])) for kind in Arithmetic if kind in found]


def _named(item: str | Target) -> Target:
    try:
        return targets.resolve(item)
    except QConfigError as error:
        raise QConfigError(f"{error} '{ALL}' stands for every machine.") from None


def _floats(integer: ir.Model) -> dict[str, int]:
    uses = kernels.integer_nodes(integer)
    float_nodes = [
        use.op_type
        for use in uses
        if use.op_type in kernels.ROUNDING_OPS
        or (use.arithmetic is kernels.Arithmetic.FLOAT and use.op_type not in EXACT_ON_FLOATS)
    ]
    return dict(Counter(float_nodes).most_common())


class _Machine:
    """One kind of arithmetic beside exact integers.

    Attributes:
        form: that it runs the model in.
    """

    def __init__(self, form: _Form, arithmetic: Arithmetic, names: tuple[str, ...]) -> None:
        self.form, self._arithmetic, self._names = form, arithmetic, names
        self._layers: dict[str, Layer] = find_layers(form.integer, arithmetic)
        form.watch(name for layer in self._layers.values() for name in layer.outputs)
        self._outputs: dict[str, Differences] = {}
        self._evaluator: reference.Evaluator | None = None
        self._state: State | None = None

    def open(self, state: State) -> None:
        """Makes it ready to run; where no pair of weights can overflow, it is exact."""
        graph = self.form.target.graph
        self._outputs = {str(value.name): output_differences(value) for value in graph.outputs}
        if any(layer.possible != 0 for layer in self._layers.values()):
            self._state = state
            self._evaluator = self.form.evaluator(self._arithmetic, self._hear)

    def _hear(self, node: onnx.NodeProto, found: Overflows) -> None:
        self._layers[node.output[0]].hear(found)

    def compare(
        self, batch: Mapping[str, Array], exact: Mapping[str, Array], usual: Mapping[str, Array]
    ) -> None:
        """Runs one batch.

        Args:
            batch: without the state.
            exact: what exact integers give, of the same form of the model.
            usual: of the usual form.
        """
        got = exact
        if self._evaluator is not None and self._state is not None:
            got = self.form.run(self._evaluator, self._state.feeds(batch))
            self._state.keep(got)
        for layer in self._layers.values():
            layer.compare(got, exact)
        for name, sums in self._outputs.items():
            theirs = usual[name]
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

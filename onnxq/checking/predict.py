"""Says on which machines a quantized model's integers differ, without having the machines.

The reference runs the model exactly and, beside that, as each kind of arithmetic among the machines
whose pairs of products may not fit int16 (see onnxq.targets.accumulation); layers where they agree
are computed once. Without samples, the weights alone say which layers can differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxq import reference, targets
from onnxq.checking.behind_floats import behind_floats
from onnxq.checking.end_to_end import output_differences
from onnxq.checking.layer_overflows import Layer, find_layers
from onnxq.checking.prediction import MachinePrediction, OutputPrediction, Prediction
from onnxq.checking.rounding import replay
from onnxq.core.threads import workers
from onnxq.errors import CalibrationError, QConfigError, kind_of
from onnxq.graph.io import load, model_hash
from onnxq.qdq.read import code_type, is_quantize
from onnxq.reference.float_nodes import FloatNodes
from onnxq.samples import input_specs, open_samples
from onnxq.samples.state import State, as_feedback, check_feedback
from onnxq.targets.accumulation import Arithmetic

if TYPE_CHECKING:
    import onnx

    from onnxq.checking.differences import Differences
    from onnxq.core.arrays import Array
    from onnxq.samples import InputSpec, Samples
    from onnxq.static.prepare import ModelSource
    from onnxq.targets import Target
    from onnxq.targets.accumulation import Overflows

    Values = dict[str, Any]

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
        QConfigError: no target or an unknown one, a feedback that the model does not have, or
            fewer than 1 thread.
        UnsupportedError: operators that the reference cannot run.
    """
    kinds = _kinds(machines)
    target = load(model)
    state = as_feedback(feedback)
    check_feedback(target, state)
    forms = _forms(target, [kind for kind, _ in kinds])
    found = [_Machine(forms[kind], kind, names) for kind, names in kinds]
    count, ties = 0, _Ties(forms[Arithmetic.EXACT], state, threads)
    if samples is not None:
        inputs = input_specs(target, state.values())
        batches = open_samples(samples, inputs, batch_size, ignore)
        usual = forms[Arithmetic.EXACT]
        sessions = [_Session(usual, found, inputs, state, threads)]
        if any(machine.form is not usual for machine in found):
            other = next(machine.form for machine in found if machine.form is not usual)
            sessions.append(_Session(other, found, inputs, state, threads))
        count = _over(batches, sessions, State(inputs, state), ties, progress)
    return Prediction(
        model_hash(target),
        count,
        tuple(machine.result() for machine in found),
        ties.behind.floats,
        ties.behind.codes,
        ties.behind.outputs,
        ties.decided,
        ties.near,
    )


def _over(
    samples: Samples,
    sessions: list[_Session],
    state: State,
    ties: _Ties,
    progress: Progress | None,
) -> int:
    """Number of batches run; the machines and the ties hold the counts."""
    done = 0
    for batch in samples:
        feeds = state.feeds(batch)
        exact = None
        for session in sessions:
            exact = session.run(batch, feeds, exact)
        assert exact is not None
        ties.count(feeds)
        state.keep(exact)
        done += 1
        if progress is not None:
            progress(done, samples.count)
    if not done:
        raise CalibrationError(f"{samples.where} hold no batch; give at least one sample.")
    return done


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """The model as machines run it after loading.

    Attributes:
        target: the model.
        integer: its integer form.
    """

    target: ir.Model
    integer: ir.Model


def _forms(target: ir.Model, kinds: Iterable[Arithmetic]) -> dict[Arithmetic, _Form]:
    """Forms of the model per kind of arithmetic, and exact: x86 makes int8 codes uint8, ARM not."""
    usual = _Form(target, reference.integer_form(target))
    forms = dict.fromkeys((Arithmetic.EXACT, *kinds), usual)
    arm = [kind for kind in forms if kind.fixed_point]
    if arm and _has_int8_activations(target):
        forms |= dict.fromkeys(arm, _Form(target, reference.integer_form(target, arm[0])))
    return forms


class _Ties:
    """Codes that floats decide, counted on samples.

    Attributes:
        behind: the nodes that make them.
        decided: codes.
        near: of these, next to a tie.
    """

    def __init__(self, form: _Form, feedback: Mapping[str, str], threads: int) -> None:
        self.behind = behind_floats(form.integer, feedback)
        self.decided = self.near = 0
        self._form, self._threads = form, threads
        self._evaluator: reference.Evaluator | None = None

    def count(self, feeds: Mapping[str, Array]) -> None:
        """Counts those of one batch."""
        if not self.behind.codes:
            return
        if self._evaluator is None:
            self._evaluator = reference.integer_evaluator(
                self._form.integer,
                threads=self._threads,
                float_nodes=FloatNodes(self._form.target),
            )
        with workers(self._threads):
            run = replay(self._evaluator, feeds, {})
        self.decided += run.decided
        self.near += run.near_ties


class _Session:
    """One form of the model, run exactly and as the machines that have it."""

    def __init__(
        self,
        form: _Form,
        machines: Iterable[_Machine],
        inputs: tuple[InputSpec, ...],
        feedback: Mapping[str, str],
        threads: int,
    ) -> None:
        self._machines = [machine for machine in machines if machine.form is form]
        self._states = [State(inputs, feedback) for _ in self._machines]
        self._names = list(dict.fromkeys(str(value.name) for value in form.target.graph.outputs))
        for machine in self._machines:
            machine.open()
        self._both = reference.SideBySide(
            form.integer,
            [machine.beside() for machine in self._machines],
            threads=threads,
            float_nodes=FloatNodes(form.target),
        )

    def run(
        self, batch: Mapping[str, Array], feeds: Mapping[str, Array], usual: Values | None
    ) -> Values:
        """Exact outputs; compares those of the machines with them.

        Args:
            batch: without the state.
            feeds: the batch with the state of exact arithmetic.
            usual: exact outputs of the usual form; None: it is this one.
        """
        own = [state.feeds(batch) for state in self._states]
        exact, others = self._both.run(self._names, feeds, own)
        for machine, state, got in zip(self._machines, self._states, others, strict=True):
            state.keep(got)
            machine.compare(got, exact if usual is None else usual)
        return exact if usual is None else usual


def _has_int8_activations(target: ir.Model) -> bool:
    """Whether x86 and ARM may run the model in different forms."""
    quantizers = filter(is_quantize, target.graph.all_nodes())
    return any(code_type(node) == ir.DataType.INT8 for node in quantizers)


def _kinds(
    machines: str | Target | Iterable[str | Target],
) -> list[tuple[Arithmetic, tuple[str, ...]]]:
    """Arithmetic -> names of the targets that have it, in the order of `all_targets`."""
    found: dict[Arithmetic, dict[str, None]] = {}
    for item in _given(machines):
        every = str(item) in (ALL, PORTABLE)
        for target in targets.all_targets() if every else (_named(item),):
            if target.name != PORTABLE:
                found.setdefault(target.arithmetic, {})[target.name] = None
    return [(kind, tuple(found[kind])) for kind in Arithmetic if kind in found]


def _given(machines: object) -> list[str | Target]:
    """One or several targets or names; what they are is not looked at."""
    if isinstance(machines, str | targets.Target):
        return [machines]
    if not isinstance(machines, Iterable) or isinstance(machines, bytes):
        raise QConfigError(
            f"machines are {kind_of(machines)} ({machines!r}); wanted '{ALL}', a name that "
            "`onnxq targets` lists, an onnxq.targets.Target, or a list of these."
        )
    given = list(machines)
    if not given:
        raise QConfigError(
            f"machines name none, so that nothing could differ; wanted at least one name that "
            f"`onnxq targets` lists, or '{ALL}', the default."
        )
    return given


def _named(item: object) -> Target:
    if isinstance(item, str) and "," in item:
        raise QConfigError(
            f"machines are '{item}'; wanted one name, or a list: {item.split(',')!r}."
        )
    try:
        return targets.resolve(item)  # type: ignore[arg-type]  # it says itself what it wants
    except QConfigError as error:
        raise QConfigError(f"{error} '{ALL}' stands for every machine.") from None


class _Machine:
    """One kind of arithmetic beside exact integers.

    Attributes:
        form: that it runs the model in.
    """

    def __init__(self, form: _Form, arithmetic: Arithmetic, names: tuple[str, ...]) -> None:
        self.form, self._arithmetic, self._names = form, arithmetic, names
        self._layers: dict[str, Layer] = find_layers(form.integer, arithmetic)
        self._of_output = {name: layer for layer in self._layers.values() for name in layer.outputs}
        self._outputs: dict[str, Differences] = {}

    def open(self) -> None:
        """Makes it ready to run."""
        graph = self.form.target.graph
        self._outputs = {str(value.name): output_differences(value) for value in graph.outputs}

    def beside(self) -> reference.Beside:
        """Model that the reference has to run; exact where no pair of weights can overflow."""
        risky = [name for name, layer in self._layers.items() if layer.possible != 0]
        return reference.Beside(self._arithmetic, risky, self._hear, self._see)

    def _hear(self, node: onnx.NodeProto, found: Overflows) -> None:
        self._layers[node.output[0]].hear(found)

    def _see(self, name: str, got: object, wanted: object) -> None:
        layer = self._of_output.get(name)
        if layer is not None:
            layer.compare(got, wanted)

    def compare(self, got: Mapping[str, object], exact: Mapping[str, object]) -> None:
        """Counts the outputs of one batch that differ.

        Args:
            got: its own.
            exact: what exact integers give, of the usual form of the model.
        """
        for layer in self._layers.values():
            layer.settle()
        for name, sums in self._outputs.items():
            theirs = exact[name]
            if got[name] is theirs and isinstance(theirs, np.ndarray):
                sums.same(theirs)
            elif isinstance(theirs, np.ndarray):
                sums.update(got[name], theirs)

    def result(self) -> MachinePrediction:
        return MachinePrediction(
            self._names,
            self._arithmetic.value,
            tuple(layer.result() for layer in self._layers.values()),
            tuple(
                OutputPrediction(
                    name,
                    sums.elements,
                    sums.differing,
                    sums.largest,
                    sums.unit,
                    sums.error,
                    sums.size,
                )
                for name, sums in self._outputs.items()
            ),
        )

"""Says on which machines a quantized model's integers differ, without having the machines.

The reference runs the model exactly and, beside that, as each kind of arithmetic among the machines
whose pairs of products may not fit int16 (see onnxq.targets.accumulation); layers where they agree
are computed once. Without samples, the weights alone say which layers can differ.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial

from onnxq import targets
from onnxq.checking.machines import Counts, Kinds, Machines
from onnxq.checking.prediction import Prediction
from onnxq.errors import QConfigError, kind_of
from onnxq.graph.io import load, model_hash
from onnxq.graph.portable import PortableModel
from onnxq.samples import Samples, open_samples
from onnxq.samples.ignored import check_ignored
from onnxq.samples.inputs import Batch
from onnxq.samples.shared_out import over_batches, without_state
from onnxq.samples.state import check_feedback
from onnxq.static.arguments import check_progress
from onnxq.static.calibrate import Progress
from onnxq.static.prepared import ModelSource
from onnxq.targets import Target
from onnxq.targets.accumulation import SaturationMode

ALL = "all"
"""Every target that is a machine."""
PORTABLE = "portable"


def predict(
    model: ModelSource,
    samples: object = None,
    machines: str | Target | Iterable[str | Target] = ALL,
    *,
    threads: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Prediction:
    """Prediction of a quantized model, on samples or from its weights alone.

    Args:
        model: the quantized model, QDQ or QOperator; path, ModelProto or onnx_ir.Model.
        samples: as `calibrate` takes them; with feedback, each machine gets its own state. None:
            the weights alone.
        machines: targets or their names; "all" and "portable": every machine.
        threads: of the reference kernels.
        progress: called after each batch.
        executor: whose workers run the reference; None: this process. The prediction is the same.
            Batches with state run here, one after the other.
    Raises:
        ModelError: the model cannot be read.
        CalibrationError: unusable samples.
        QConfigError: no target or an unknown one, a feedback that the model does not have, or
            fewer than 1 thread.
        UnsupportedError: operators that the reference cannot run.
        WorkerError: workers died, more often than it was tried.

    Warns:
        UserWarning: an executor is given, and feedback.
    """
    check_progress(progress)
    kinds = machine_kinds(machines)
    target = load(model)
    given = Samples.of(samples)
    state = given.feedback
    check_feedback(target, state)
    run = Machines(target, kinds, state, threads)
    count, counts = 0, run.nothing()
    if given.source is not None:
        batches = open_samples(given, run.inputs)
        check_ignored(given)
        workers = without_state(executor, state)
        away = run.open
        if workers is not None:
            away = partial(_opened, PortableModel.of(model, target), tuple(kinds), threads)
        for found in over_batches(workers, run.open, away, batches, progress):
            counts.add(found)
            count += 1
    return Prediction(
        model_hash(target),
        count,
        run.results(counts),
        run.behind.floats,
        run.behind.integers,
        run.behind.outputs,
        counts.decided,
        counts.near,
    )


def _opened(model: PortableModel, kinds: Kinds, threads: int) -> Callable[[Batch], Counts]:
    """Work of a worker: the machines of a model, opened there."""
    return Machines(model.load(), kinds, {}, threads).open()


def machine_kinds(
    machines: str | Target | Iterable[str | Target],
) -> list[tuple[SaturationMode, tuple[str, ...]]]:
    """Arithmetic -> names of the targets that have it, in the order of `all_targets`."""
    found: dict[SaturationMode, dict[str, None]] = {}
    for item in _given(machines):
        every = str(item) in (ALL, PORTABLE)
        for target in targets.all_targets() if every else (_named(item),):
            if target.name != PORTABLE:
                found.setdefault(target.saturation_mode, {})[target.name] = None
    return [(kind, tuple(found[kind])) for kind in SaturationMode if kind in found]


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

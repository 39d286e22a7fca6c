"""Runs models on ONNX Runtime's CPU kernels and shows what it runs.

    with open_session(model) as session:
        outputs = session.run({"x": x})
    integer_nodes(optimized_graph(model))      # which nodes compute in integers

Weights of an onnx_ir.Model are handed over as the arrays they are (mapped from disk, if they are),
never through a serialized protobuf: models beyond its 2 GB limit open too.

Over 300 lines: every session of this process is opened in this one file; the child's, in first_run.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import onnx_ir as ir
import onnxruntime as ort
from msgspec.structs import replace
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from onnxq.core.arrays import Array
from onnxq.core.atomic import temporary_folder
from onnxq.errors import (
    CalibrationError,
    ModelError,
    OutputError,
    QConfigError,
    first_line,
    nearest,
)
from onnxq.jobs.child import NoChildError
from onnxq.jobs.child_main import CPU, Opening
from onnxq.ort.first_run import FirstRun, Source
from onnxq.ort.handing_over import INLINE_BYTES, folder_of_weights, hand_over
from onnxq.ort.node_kinds import NodeKind, NodeUse, count, integer_nodes

__all__ = [
    "CPU",
    "FirstRunIn",
    "HoldsSessions",
    "Memory",
    "NodeKind",
    "NodeUse",
    "Optimization",
    "Session",
    "Waiting",
    "Weights",
    "check_provider",
    "count",
    "integer_nodes",
    "open_profiled",
    "open_session",
    "open_with_graph",
    "optimized_graph",
    "placement",
    "signatures",
]

ORT_ERRORS: tuple[type[Exception], ...] = tuple(
    kind
    for kind in vars(ort_errors).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
)
"""Every exception class that ONNX Runtime defines; they have no common base."""
OPEN_ERRORS: tuple[type[Exception], ...] = (*ORT_ERRORS, RuntimeError)
RUN_ERRORS: tuple[type[Exception], ...] = (*ORT_ERRORS, RuntimeError, ValueError)
OUT_OF_TABLE = "indices element out of data bounds"
"""Words of ONNX Runtime where a table has no row of an index."""
NOT_WRITTEN = "Protobuf serialization failed"
"""Words of ONNX Runtime where an optimized model does not fit on the disk."""
SEPARATE_BYTES = 1 << 26
"""Optimized models with more weights are written with external data, which is then memory-mapped;
protobuf would hold them in memory, and ends at 2 GB."""


class Optimization(enum.Enum):
    """How far ONNX Runtime may rewrite the graph before it runs."""

    NONE = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    BASIC = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    EXTENDED = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    ALL = ort.GraphOptimizationLevel.ORT_ENABLE_ALL


def _options(threads: int | None, optimization: Optimization) -> Opening:
    return Opening(int(optimization.value), threads)


SINGLE = _options(1, Optimization.ALL)
"""Options of a session of one thread."""


class Memory(enum.Enum):
    """How ONNX Runtime gets memory for activations."""

    PLANNED = "planned"
    """One block per set of input shapes, laid out once: its default."""
    ON_DEMAND = "on demand"
    """Piece by piece. As fast; memory stays level when every batch has other shapes (ResNet-50, 400
    shapes: 522 MB throughout, where planned blocks grow from 515 to 557 MB)."""


class Waiting(enum.Enum):
    """Habit of a session's threads between two of its runs."""

    SPINNING = "spinning"
    """Threads look for work: its default, quickest where run follows run."""
    ASLEEP = "asleep"
    """Threads leave their cores to other work in between (calibration of ResNet-50: 153 ms of CPU
    time per batch in place of 246)."""


class Weights(enum.Enum):
    """Way in which ONNX Runtime gets the weights of an onnx_ir.Model."""

    ARRAYS = "arrays"
    """Arrays as they are; it copies each once, packed or not."""
    FILES = "files"
    """Files, which it maps by itself; it copies only what it packs for its kernels: not the
    table of an embedding. The files must stay as they are while the session is open."""


class FirstRunIn(enum.Enum):
    """Process in which a model is opened and run for the first time."""

    CHILD = "child"
    """A child process, which ONNX Runtime may kill, or which is killed at its bounds."""
    THIS_PROCESS = "this process"
    """This one: for parts of a model that ran as a whole, and for models that onnxq makes up."""


class Session:
    """A model that is ready to run; also a context manager that frees it.

    Attributes:
        inputs: names of the inputs, in the model's order.
        outputs: names of the outputs, in the model's order, each once.
        types: of the outputs, in ONNX Runtime's words: "tensor(uint8)", "seq(tensor(float))".
    """

    def __init__(self, source: Source, first_run: FirstRunIn) -> None:
        self._source: Source | None = source
        self._session: ort.InferenceSession | None = None  # here; None until it ran elsewhere
        self._kept: Sequence[object] = ()  # OrtValues and arrays that ONNX Runtime refers to
        self._trial = None if first_run is FirstRunIn.THIS_PROCESS else FirstRun(source)
        self._name = source.name
        self.inputs: tuple[str, ...] = ()
        self.types: dict[str, str] = {}
        self.outputs: tuple[str, ...] = ()
        if self._trial is not None and not self._trial.is_known and self._opened_elsewhere():
            return
        self._open_here()
        assert self._session is not None
        self.inputs = tuple(value.name for value in self._session.get_inputs())
        self.types = {v.name: v.type for v in self._session.get_outputs()}
        self.outputs = tuple(self.types)

    def _opened_elsewhere(self) -> bool:
        """Opens the model in the child process; whether there is one."""
        assert self._trial is not None
        try:
            reply = self._trial.open()
        except NoChildError:
            return False
        except UnicodeEncodeError as error:  # a path that is no UTF-8
            raise self._refused(error) from error
        if reply.error:
            raise self._refused(RuntimeError(reply.error))
        self._source = self._trial.source
        self.inputs, self.types = reply.inputs, dict(reply.outputs)
        self.outputs = tuple(self.types)
        return True

    def _open_here(self) -> None:
        assert self._source is not None
        try:
            self._session, self._kept = self._source.opened()
        except OPEN_ERRORS as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> ModelError:
        refused = ModelError(
            f"{self._name}: ONNX Runtime {ort.__version__} does not accept it: {_reason(error)}"
        )
        refused.__cause__ = error
        return refused

    def prove(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> None:
        """Runs the model in the child process and opens it here, unless that was done.

        `run` does so by itself. What takes the time of runs calls this before.

        Raises:
            CalibrationError, ModelError, LimitError: as of `run`.
        """
        if self._session is not None or self._source is None or self._trial is None:
            return
        self._check_names(feeds)
        try:
            reply = self._trial.run(feeds, outputs)
        except NoChildError:
            reply = None
        if reply is not None and reply.error:
            raise self._not_run(feeds, RuntimeError(reply.error))
        self._open_here()

    def _not_run(self, feeds: Mapping[str, Array], error: Exception) -> CalibrationError:
        shapes = {name: (str(x.dtype), x.shape) for name, x in feeds.items()}
        unfit = CalibrationError(
            f"{self._name} does not run on inputs {shapes}: {first_line(error)}. {_remedy(error)}"
        )
        unfit.__cause__ = error
        return unfit

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """One array per output; they own their memory, and ONNX Runtime does not touch them again.

        Args:
            feeds: input name -> array, all inputs of the model.
            outputs: names of the wanted ones, perhaps none; None: all of `outputs`, each once.
        Raises:
            CalibrationError: an input is missing or unknown, or the model cannot run on it.
            ModelError: ONNX Runtime dies of the model's first run.
            LimitError: the first run takes too long, or too much memory.
        """
        if self._source is None:
            raise CalibrationError(f"{self._name}: the session is closed; open another one.")
        self._check_names(feeds)
        if outputs is not None and not outputs:
            return []  # to ONNX Runtime, no names are all
        self.prove(feeds, outputs)
        assert self._session is not None, "proved"
        try:
            arrays: list[Array] = self._session.run(list(outputs or self.outputs), dict(feeds))
        except RUN_ERRORS as error:
            raise self._not_run(feeds, error) from error
        return arrays

    def run_named(
        self, feeds: Mapping[str, Array], outputs: Sequence[str] | Mapping[str, str] | None = None
    ) -> dict[str, Array]:
        """Arrays by output, as `run`; or by the keys of {key: output}."""
        named = self.outputs if outputs is None else outputs
        asked = named if isinstance(named, Mapping) else {name: name for name in named}
        names = list(dict.fromkeys(asked.values()))
        found = dict(zip(names, self.run(feeds, names), strict=True))
        return {key: found[name] for key, name in asked.items()}

    def _check_names(self, feeds: Mapping[str, Array]) -> None:
        for name in feeds:
            if name not in self.inputs:
                known = ", ".join(self.inputs)
                hint = nearest(name, self.inputs)
                raise CalibrationError(f"{self._name} has no input '{name}'; it has {known}.{hint}")
        missing = [name for name in self.inputs if name not in feeds]
        if missing:
            raise CalibrationError(
                f"{self._name}: input '{missing[0]}' is missing; got {', '.join(feeds) or 'none'}."
            )

    def end_profile(self) -> Path:
        """File with the times of the nodes in every run so far; of sessions of `open_profiled`.

        Raises:
            CalibrationError: the session is closed, or did not run.
        """
        if self._session is None:
            raise CalibrationError(f"{self._name}: the session is closed, or has not run yet.")
        return Path(self._session.end_profiling())

    def placement(self) -> dict[str, int]:
        """Execution provider -> nodes that it gets; empty for the CPU's alone."""
        assert self._session is not None, "it was opened here"
        found: dict[str, int] = {}
        for part in self._session.get_provider_graph_assignment_info():
            found[part.ep_name] = found.get(part.ep_name, 0) + len(part.get_nodes())
        return found

    def close(self) -> None:
        """Frees the model; further runs are refused."""
        if self._source is not None and self._session is None and self._trial is not None:
            self._trial.close()
        self._source, self._session = None, None
        self._kept = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HoldsSessions:
    """A context whose end closes the sessions that it holds."""

    _sessions: tuple[Session, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            session.close()


def open_session(
    model: ir.Model | str | Path,
    *,
    threads: int | None = None,
    optimization: Optimization = Optimization.ALL,
    memory: Memory = Memory.PLANNED,
    waiting: Waiting = Waiting.SPINNING,
    weights: Weights = Weights.ARRAYS,
    first_run: FirstRunIn = FirstRunIn.CHILD,
    provider: str = CPU,
) -> Session:
    """A Session for the model.

    ONNX Runtime copies the weights once when it packs them for its kernels, so that a session needs
    about their size in memory, whether they are in files or in arrays; `close` frees it.

    Args:
        model: an onnx_ir.Model of any size, or a path.
        threads: of one run; None: one per core.
        optimization: how far the graph may be rewritten.
        memory: how memory for activations is got.
        waiting: what its threads do between runs.
        weights: how it gets those of an onnx_ir.Model.
        first_run: where it happens.
        provider: that gets the nodes which it takes; the CPU's gets the others.
    Raises:
        ModelError: the file is not there, or ONNX Runtime does not accept the model, or dies of it.
        LimitError: opening it takes too long, or too much memory.
    """
    entries = {}
    if waiting is Waiting.ASLEEP:
        entries["session.intra_op.allow_spinning"] = "0"
    opening = replace(
        _options(threads, optimization),
        has_memory_plan=memory is Memory.PLANNED,
        entries=entries,
        provider=provider,
    )
    folder = None
    if weights is Weights.FILES and isinstance(model, ir.Model):
        folder = folder_of_weights(model)
    return _open(model, opening, folder, first_run)


def _open(
    model: ir.Model | str | Path,
    opening: Opening,
    folder: Path | None = None,
    first_run: FirstRunIn = FirstRunIn.CHILD,
) -> Session:
    if not isinstance(model, ir.Model):
        name = f"model '{model}'"
        if not Path(model).is_file():
            raise ModelError(f"{name}: there is no such file. Check the path.")
        return Session(Source(name, Path(model), opening), first_run)
    handed = hand_over(model, folder)
    if folder is not None:
        key = "session.model_external_initializers_file_folder_path"
        opening = replace(opening, entries={**opening.entries, key: str(folder)})
    name = f"model '{model.graph.name or 'unnamed'}'"
    source = Source(name, handed.graph, opening, handed.weights, handed.files)
    return Session(source, first_run)


def _reason(error: Exception) -> str:
    """Why a model is refused, and what to do."""
    line = first_line(error)  # behind it is ONNX Runtime's stack of source lines
    if "layout_ == 0" in line:
        return (
            "it has no LSTM, GRU or RNN with layout=1 (batch first). Export the model with "
            "layout=0; dynamic quantization of the node writes it so, too."
        )
    if "is not a registered function/op" in line:
        return (
            f"{line}. Nothing that runs the model can be done without that operator: neither "
            "calibration nor a verdict. Calibrate where it is registered and give the statistics "
            "(--stats), or quantize dynamically, and write the file with --no-verdict (in Python "
            "check=onnxq.Check.NONE)."
        )
    return f"{line}. Check it with onnx.checker.check_model(path, full_check=True)."


def optimized_graph(model: ir.Model | str | Path) -> ir.Model:
    """The graph that ONNX Runtime really runs on this machine, fused nodes and layouts included.

    Nothing is left on disk. It suits this machine only, and is for reading rather than for keeping.

    Raises:
        ModelError: ONNX Runtime does not accept the model.
        OutputError: the folder for temporary files is full.
    """
    session, optimized = open_with_graph(model)
    session.close()
    return optimized


def open_with_graph(model: ir.Model | str | Path) -> tuple[Session, ir.Model]:
    """A Session of one thread, and its `optimized_graph`: one loading of the model for both.

    Raises:
        ModelError: ONNX Runtime does not accept the model.
        OutputError: the folder for temporary files is full.
    """
    return _with_graph(model, SINGLE)


def open_profiled(model: ir.Model | str | Path, folder: Path) -> tuple[Session, ir.Model]:
    """A Session of one thread that writes down the times of its nodes, and its `optimized_graph`.

    Args:
        model: as of `open_session`.
        folder: for the file of `Session.end_profile`.
    Raises:
        ModelError, OutputError: as of `open_with_graph`.
    """
    return _with_graph(model, replace(SINGLE, profile=str(folder / "profile")))


def _with_graph(model: ir.Model | str | Path, opening: Opening) -> tuple[Session, ir.Model]:
    with temporary_folder() as folder:
        path = folder / "optimized.onnx"
        entries = dict(opening.entries)
        if _weight_bytes(model) > SEPARATE_BYTES:
            key = "session.optimized_model_external_initializers"
            entries[f"{key}_file_name"] = "optimized.data"
            entries[f"{key}_min_size_in_bytes"] = str(INLINE_BYTES)
        try:
            session = _open(model, replace(opening, entries=entries, optimized=str(path)))
        except ModelError as error:
            if NOT_WRITTEN not in str(error):
                raise
            raise OutputError(
                f"'{folder.parent}' takes no optimized model from ONNX Runtime: the disk is full, "
                "or a limit on the size of files. Free some space, or set TMPDIR to another folder."
            ) from error
        optimized = ir.load(path)
        for value in optimized.graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value.numpy()  # maps the file; the mapping outlives its name
        return session, optimized


def check_provider(name: str) -> None:
    """Passes an execution provider that the installed ONNX Runtime has."""
    known = ort.get_available_providers()
    if name not in known:
        raise QConfigError(
            f"provider: {name!r} is none of the installed onnxruntime, which has "
            f"{', '.join(known)}.{nearest(name, known)}"
        )


def placement(model: ir.Model, provider: str) -> dict[str, int]:
    """Execution provider -> nodes of the model that it gets, fused ones counted one by one."""
    here = FirstRunIn.THIS_PROCESS  # it ran
    with open_session(model, threads=1, first_run=here, provider=provider) as session:
        return session.placement()


def _remedy(error: Exception) -> str:
    """Words on what to look at where a model does not run on samples."""
    if OUT_OF_TABLE in str(error):
        return (
            "An index in the samples is beyond a table of the model: was the text tokenized for "
            "another one?"
        )
    return "Check the samples' shapes and dtypes against the model's inputs."


def _weight_bytes(model: ir.Model | str | Path) -> int:
    if not isinstance(model, ir.Model):
        path = Path(model)
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    tensors = (value.const_value for value in model.graph.initializers.values())
    # a tensor of texts has no size in bytes
    return sum(t.nbytes for t in tensors if t is not None and t.dtype != ir.DataType.STRING)


def signatures() -> Iterator[tuple[str, str, tuple[int, int], int, frozenset[str]]]:
    """(domain, op_type, (fewest, most) inputs, most outputs, attributes) of each known operator.

    Older versions of an operator come before newer ones.
    """
    schemas = sorted(ort_errors.get_all_operator_schema(), key=lambda s: int(s.since_version))
    for schema in schemas:
        names = frozenset(map(str, schema.attributes))
        inputs = schema.min_input, schema.max_input
        yield schema.domain, schema.name, inputs, schema.max_output, names

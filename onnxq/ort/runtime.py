"""Runs models on ONNX Runtime's CPU kernels and shows what it runs; no other module imports it.

    with open_session(model) as session:
        outputs = session.run({"x": x})
    integer_nodes(optimized_graph(model))      # which nodes compute in integers

Weights of an onnx_ir.Model are handed over as the arrays they are (mapped from disk, if they are),
never through a serialized protobuf: models beyond its 2 GB limit open too.

Over 300 lines: whatever touches ONNX Runtime stands in this one file.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Self

import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from onnxq.core.atomic import temporary_folder
from onnxq.errors import (
    CalibrationError,
    ModelError,
    OutputError,
    first_line,
    nearest,
)
from onnxq.ort.handing_over import INLINE_BYTES, folder_of_weights, hand_over
from onnxq.ort.node_kinds import NodeKind, NodeUse, count, integer_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnxq.core.arrays import Array

__all__ = [
    "Memory",
    "NodeKind",
    "NodeUse",
    "Optimization",
    "Session",
    "Waiting",
    "Weights",
    "count",
    "integer_nodes",
    "open_profiled",
    "open_session",
    "open_with_graph",
    "optimized_graph",
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
FATAL_ONLY = 4
"""ONNX Runtime's log severity. Its errors are exceptions, too, which say the same. Its warnings are
about the model it was given (unused initializers, shapes it merges, an optimized file that suits
this machine only): onnxq writes those on purpose."""


class Optimization(enum.Enum):
    """How far ONNX Runtime may rewrite the graph before it runs."""

    NONE = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    BASIC = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    EXTENDED = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    ALL = ort.GraphOptimizationLevel.ORT_ENABLE_ALL


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


class Session:
    """A model that is ready to run; also a context manager that frees it.

    Attributes:
        inputs: names of the inputs, in the model's order.
        outputs: names of the outputs, in the model's order.
        types: of the outputs, in ONNX Runtime's words: "tensor(uint8)", "seq(tensor(float))".
    """

    def __init__(self, session: ort.InferenceSession, name: str, kept: Sequence[object]) -> None:
        self._session: ort.InferenceSession | None = session
        self._name = name
        self._kept = kept  # OrtValues and arrays that ONNX Runtime refers to
        self.inputs = tuple(value.name for value in session.get_inputs())
        self.types: dict[str, str] = {value.name: value.type for value in session.get_outputs()}
        self.outputs = tuple(self.types)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """One array per output; they own their memory, and ONNX Runtime does not touch them again.

        Args:
            feeds: input name -> array, all inputs of the model.
            outputs: names of the wanted ones, perhaps none; None: all, in the model's order.

        Raises:
            CalibrationError: an input is missing or unknown, or the model cannot run on it.
        """
        if self._session is None:
            raise CalibrationError(f"{self._name}: the session is closed; open another one.")
        self._check_names(feeds)
        if outputs is not None and not outputs:
            return []  # to ONNX Runtime, no names are all
        try:
            arrays: list[Array] = self._session.run(outputs and list(outputs), dict(feeds))
        except RUN_ERRORS as error:
            shapes = {name: (str(x.dtype), x.shape) for name, x in feeds.items()}
            raise CalibrationError(
                f"{self._name} does not run on inputs {shapes}: {first_line(error)}. "
                f"{_remedy(error)}"
            ) from error
        return arrays

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
            CalibrationError: the session is closed.
        """
        if self._session is None:
            raise CalibrationError(f"{self._name}: the session is closed; open another one.")
        return Path(self._session.end_profiling())

    def close(self) -> None:
        """Frees the model; further runs are refused."""
        self._session = None
        self._kept = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    model: ir.Model | str | Path,
    *,
    threads: int | None = None,
    optimization: Optimization = Optimization.ALL,
    memory: Memory = Memory.PLANNED,
    waiting: Waiting = Waiting.SPINNING,
    weights: Weights = Weights.ARRAYS,
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

    Raises:
        ModelError: the file is not there, or ONNX Runtime does not accept the model.
    """
    options = _options(threads, optimization)
    options.enable_mem_pattern = memory is Memory.PLANNED
    if waiting is Waiting.ASLEEP:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    folder = None
    if weights is Weights.FILES and isinstance(model, ir.Model):
        folder = folder_of_weights(model)
    return _open(model, options, folder)


def _options(threads: int | None, optimization: Optimization) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = optimization.value
    options.log_severity_level = FATAL_ONLY
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    return options


def _open(
    model: ir.Model | str | Path, options: ort.SessionOptions, folder: Path | None = None
) -> Session:
    source: bytes | str
    kept: list[ort.OrtValue] = []
    if isinstance(model, ir.Model):
        name = f"model '{model.graph.name or 'unnamed'}'"
        handed = hand_over(model, folder)
        if folder is not None:
            key = "session.model_external_initializers_file_folder_path"
            options.add_session_config_entry(key, str(folder))
        source = handed.graph
        kept = [ort.OrtValue.ortvalue_from_numpy(array) for array in handed.weights.values()]
        if kept:
            options.add_external_initializers(list(handed.weights), kept)
    else:
        name = f"model '{model}'"
        source = str(model)
        if not Path(model).is_file():
            raise ModelError(f"{name}: there is no such file. Check the path.")
    try:
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except OPEN_ERRORS as error:
        raise ModelError(
            f"{name}: ONNX Runtime {ort.__version__} does not accept it: {_reason(error)}"
        ) from error
    return Session(session, name, kept)


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
    return _with_graph(model, _options(1, Optimization.ALL))


def open_profiled(model: ir.Model | str | Path, folder: Path) -> tuple[Session, ir.Model]:
    """A Session of one thread that writes down the times of its nodes, and its `optimized_graph`.

    Args:
        model: as of `open_session`.
        folder: for the file of `Session.end_profile`.

    Raises:
        ModelError, OutputError: as of `open_with_graph`.
    """
    options = _options(1, Optimization.ALL)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    return _with_graph(model, options)


def _with_graph(
    model: ir.Model | str | Path, options: ort.SessionOptions
) -> tuple[Session, ir.Model]:
    with temporary_folder() as folder:
        path = folder / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        if _weight_bytes(model) > SEPARATE_BYTES:
            key = "session.optimized_model_external_initializers"
            options.add_session_config_entry(f"{key}_file_name", "optimized.data")
            options.add_session_config_entry(f"{key}_min_size_in_bytes", str(INLINE_BYTES))
        try:
            session = _open(model, options)
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

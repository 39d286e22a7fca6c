"""Guards of the functions that users call: a wrong kind of argument is told what makes a right one.

The arguments are plain objects here: it is callers without a type checker whom this serves.
"""

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path

from onnxq.errors import CalibrationError, ModelError, QConfigError, kind_of, nearest
from onnxq.qconfig import QConfig, QConfigMapping, default_choice, get_default_qconfig
from onnxq.static.statistics import Statistics
from onnxq.times import Costs

YAML_SUFFIXES = (".yaml", ".yml")
BACKENDS = ("fbgemm", "x86", "qnnpack", "onednn")
"""Names that PyTorch documents for whole qconfigs."""


def mapping_from(value: object, backend: str = "") -> QConfigMapping | None:
    """The QConfigMapping that is given, or that a YAML file describes; None as it is."""
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith(YAML_SUFFIXES)):
        base = get_default_qconfig(backend)
        return QConfigMapping.from_yaml(Path(value), base, default_choice(backend))
    check_mapping(value)
    return value if isinstance(value, QConfigMapping) else None


def check_mapping(value: object, of_backend: str = "default_qconfig_mapping({})") -> None:
    """Passes a QConfigMapping or None."""
    if value is None or isinstance(value, QConfigMapping):
        return
    shown = f" ({value!r})" if isinstance(value, str) else ""
    raise QConfigError(
        f"qconfig is {kind_of(value)}{shown}; wanted an onnxq.qconfig.QConfigMapping. "
        f"{_remedy(value, of_backend)}"
    )


def _remedy(value: object, of_backend: str) -> str:
    """The call that the caller may have meant."""
    if isinstance(value, QConfig):
        return "Write QConfigMapping(qconfig) to give every node this one."
    if isinstance(value, Mapping):
        return "Write QConfigMapping.from_dict(...)."
    if isinstance(value, str) and value.endswith(YAML_SUFFIXES):
        return f"Write QConfigMapping.from_yaml(Path({value!r}))."
    if isinstance(value, str) and value in BACKENDS:
        return f"Write {of_backend.format(repr(value))}."
    return (
        f"QConfigMapping.from_yaml reads a file (.yaml, .yml), {of_backend.format('...')} is a "
        f"backend's, such as 'x86', and None is onnxq's default.{nearest(str(value), BACKENDS)}"
    )


def check_costs(value: object) -> None:
    """Passes Costs or None."""
    if value is None or isinstance(value, Costs):
        return
    raise CalibrationError(
        f"costs are {kind_of(value)}; wanted onnxq.times.Costs. Costs.load(path) reads what "
        "`onnxq costs` wrote."
    )


def check_path(name: str, value: object) -> None:
    """Passes the path of a file, or None for no file."""
    if value is None or isinstance(value, str | Path):
        return
    raise QConfigError(
        f"{name} is {kind_of(value)}; wanted the path of a file, such as 'model.{name}', or None."
    )


def check_progress(value: object) -> None:
    """Passes a function, or None."""
    if value is not None and not callable(value):
        raise QConfigError(
            f"progress is {kind_of(value)}; wanted a function(done, total), or None."
        )


def check_threads(value: object) -> None:
    """Passes a number of threads of one inference, or None for one per core."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return
    raise QConfigError(f"threads: got {value!r}; wanted a whole number from 1, or None.")


def check_bound(name: str, value: float | None) -> None:
    """Passes a bound that a number of LSB or a share can keep: 0 or more; None: no bound."""
    if value is not None and not value >= 0:
        raise QConfigError(f"{name} is {value}; wanted 0 or more, or None for no bound.")


def check_prepared(value: object, caller: str) -> None:
    """Passes what has the parts of a Prepared that every stage reads."""
    if hasattr(value, "model") and hasattr(value, "observed"):
        return
    raise ModelError(
        f"{caller}: the first argument is {kind_of(value)}; wanted what onnxq.prepare(...) "
        "returns. Call prepared = onnxq.prepare(model) first and pass that."
    )


def check_statistics(value: object, caller: str) -> None:
    """Passes Statistics."""
    if isinstance(value, Statistics):
        return
    raise CalibrationError(
        f"{caller}: the statistics are {kind_of(value)}; wanted what "
        "onnxq.calibrate(prepared, samples) returns. Call that first and pass its result."
    )


def check_decibels(min_sqnr_db: object) -> None:
    """Passes None and every number; to be asked before the work begins."""
    if min_sqnr_db is None:
        return
    if not isinstance(min_sqnr_db, Real) or math.isnan(min_sqnr_db):
        raise QConfigError(f"min_sqnr_db: got {min_sqnr_db!r}; wanted a number of dB, such as 20.")

"""Statistics: what the observers have seen of one model; mergeable, and saved as one .stats file.

A .stats file is an npz: "header" holds JSON (format, model hash, observers), "batches" and "checks"
the numbers and CRC-32 of the batches, "counts" the batches that reached each tensor, and
"<i>/<key>" the state of the i-th observer. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from onnxq.core.atomic import write_atomically
from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, nearest
from onnxq.observers import Observer, ObserverSpec
from onnxq.samples.columns import HEADER_ERRORS, why_unreadable

FORMAT = "onnxq.stats"
VERSION = 2
DAMAGED = (*HEADER_ERRORS, AttributeError)
"""Errors that reading a truncated or altered npz, its JSON or an observer's arrays raises."""

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics that the observers have gathered.

    Attributes:
        model_hash: of the canonical float model that was run.
        observers: tensor name -> its observer; treat them as read-only.
        batches: global number of each batch that was seen -> CRC-32 of its arrays.
        counts: tensor name -> number of batches that reached it; fewer than all inside an If.
    """

    model_hash: str
    observers: Mapping[str, Observer]
    batches: Mapping[int, int]
    counts: Mapping[str, int]

    @property
    def next_batch(self) -> int:
        """The number that comes after every batch seen."""
        return max(self.batches, default=-1) + 1

    def check_model(self, model_hash: str) -> None:
        """Refuses a model that these statistics are not of.

        Raises:
            CalibrationError: the hash differs.
        """
        if model_hash != self.model_hash:
            raise CalibrationError(
                f"these statistics are of another model (hash {self.model_hash[:12]}; this model "
                f"has {model_hash[:12]}): its graph or weights changed. Calibrate again."
            )

    def observer(self, tensor: str, spec: ObserverSpec) -> Observer:
        """The observer of that tensor, if it is of that spec.

        Raises:
            CalibrationError: the tensor was not observed, or by another observer.
        """
        if tensor not in self.observers:
            hint = nearest(tensor, self.observers)
            raise CalibrationError(
                f"tensor '{tensor}' is not in the statistics.{hint} Calibrate again with this "
                "qconfig."
            )
        observer = self.observers[tensor]
        if observer.spec != spec:
            raise CalibrationError(
                f"tensor '{tensor}' was observed by {observer.spec}; the qconfig asks for {spec}. "
                "Calibrate again with this qconfig."
            )
        return observer

    def merge(self, other: Statistics) -> Statistics:
        """Statistics of both, as if of one run; both stay as they are.

        Shards may be merged in any order and grouping: the result is identical.

        Raises:
            CalibrationError: another model, other tensors or observers, or a batch that both have
                seen.
        """
        other.check_model(self.model_hash)
        twice = self.batches.keys() & other.batches.keys()
        if twice:
            raise CalibrationError(
                f"batch {min(twice)} is in both statistics ({len(twice)} such) and would count "
                "twice. Give each run its own part of the samples: --shard 1/2 and --shard 2/2 (in "
                "Python Shard(0, 2) and Shard(1, 2), or its own first_batch)."
            )
        apart = self.observers.keys() ^ other.observers.keys()
        if apart:
            raise CalibrationError(
                f"tensor '{min(apart)}' is in one of the statistics only ({len(apart)} such). "
                "Calibrate all shards with the same qconfig."
            )
        merged = {n: _merged(n, seen, other.observers[n]) for n, seen in self.observers.items()}
        batches = dict(sorted({**self.batches, **other.batches}.items()))
        counts = {n: self.counts.get(n, 0) + other.counts.get(n, 0) for n in self.observers}
        return Statistics(
            self.model_hash,
            MappingProxyType(merged),
            MappingProxyType(batches),
            MappingProxyType(counts),
        )

    def save(self, path: str | Path) -> None:
        """Writes a .stats file, which is there whole or not at all.

        Raises:
            OutputError: the file cannot be written.
        """
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "header": np.frombuffer(json.dumps(self._header()).encode(), np.uint8),
            "batches": np.array(list(self.batches), np.int64),
            "checks": np.array(list(self.batches.values()), np.uint32),
            "counts": np.array([self.counts.get(n, 0) for n in self.observers], np.int64),
        }
        for number, observer in enumerate(self.observers.values()):
            for key, array in observer.state().items():
                arrays[f"{number}/{key}"] = np.asarray(array)
        # savez takes arrays of any name as keywords, its stub one of them as a flag
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]  # as said

    def _header(self) -> dict[str, object]:
        tensors = [
            {"name": name, "observer": observer.spec.to_dict()}
            for name, observer in self.observers.items()
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "model_hash": self.model_hash,
            "tensors": tensors,
        }

    @classmethod
    def load(cls, path: str | Path) -> Statistics:
        """The Statistics of a .stats file.

        Raises:
            CalibrationError: the file is missing, damaged, no .stats file, or of a newer onnxq.
            QConfigError: it names an observer class that is not imported.
        """
        arrays = _read(Path(path))
        try:
            header = json.loads(arrays["header"].tobytes())
            return _restored(header, arrays, path)
        except DAMAGED as error:
            raise _damaged(path, error) from error


def _merged(tensor: str, ours: Observer, theirs: Observer) -> Observer:
    try:
        return ours.merge(theirs)
    except CalibrationError as error:
        raise CalibrationError(f"tensor '{tensor}': {error}") from error


def _restored(header: dict[str, object], arrays: Arrays, path: str | Path) -> Statistics:
    if header["format"] != FORMAT or header["version"] != VERSION:
        raise CalibrationError(
            f"statistics '{path}' have format {header['format']} {header['version']}; this onnxq "
            f"reads {FORMAT} {VERSION}. Calibrate again, or update onnxq."
        )
    states: dict[int, dict[str, npt.NDArray[np.generic]]] = {}
    for name, array in arrays.items():
        number, slash, key = name.partition("/")
        if slash:
            states.setdefault(int(number), {})[key] = array
    tensors = header["tensors"]
    if not isinstance(tensors, list):
        raise TypeError("tensors")
    observers = {
        str(tensor["name"]): ObserverSpec.from_dict(tensor["observer"]).restore(states.get(i, {}))
        for i, tensor in enumerate(tensors)
    }
    batches = dict(zip(arrays["batches"].tolist(), arrays["checks"].tolist(), strict=True))
    return Statistics(
        str(header["model_hash"]),
        MappingProxyType(observers),
        MappingProxyType(batches),
        MappingProxyType(dict(zip(observers, arrays["counts"].tolist(), strict=True))),
    )


def _damaged(path: str | Path, error: Exception) -> CalibrationError:
    return CalibrationError(
        f"statistics '{path}' cannot be read ({type(error).__name__}: {why_unreadable(error)}): "
        "the file is damaged or no .stats file. Calibrate again."
    )


def _no_statistics(path: Path, names: list[str]) -> CalibrationError:
    return CalibrationError(
        f"statistics '{path}': this is an npz with the arrays {', '.join(names[:3]) or 'none'}, "
        "and no .stats file. Make one with `onnxq calibrate`; arrays to calibrate on are given as "
        "samples, without --stats."
    )


def _read(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    if why := why_no_file(path):
        raise CalibrationError(f"statistics '{path}': {why}. Give a .stats file.")
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise TypeError("a single array")
            if "header" not in loaded.files:
                raise _no_statistics(path, loaded.files)
            return {name: loaded[name] for name in loaded.files}
    except DAMAGED as error:
        raise _damaged(path, error) from error

"""Statistics: what the observers have seen of one model; mergeable, and saved as one .stats file.

A .stats file is an npz: "header" holds JSON (format, model hash, observers), "batches" and "checks"
the numbers and CRC-32 of the batches, "counts" the batches that reached each tensor, and
"<i>/<key>" the state of the i-th observer, those that only watch behind the others. Nothing is
pickled. Files of version 2 lack shards, samples and what is not finite; early ones of version 3
watch nothing.
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from onnxq.core.atomic import write_atomically
from onnxq.core.brief import brief
from onnxq.core.regular import why_no_file
from onnxq.core.saved import plain, read
from onnxq.errors import CalibrationError, OnnxqError, nearest
from onnxq.observers import Observer, ObserverSpec
from onnxq.page.card import card_of
from onnxq.samples.columns import HEADER_ERRORS, is_bomb, why_unreadable
from onnxq.static.seen_samples import SeenSamples
from onnxq.static.shard import Shard, notes_on_missing

FORMAT = "onnxq.stats"
VERSION = 3
READ_VERSIONS = (2, VERSION)
QUICKLY = 1  # zlib's level; 6, as in .stats files, takes three times as long for an eighth less
DAMAGED = (*HEADER_ERRORS, AttributeError)
"""Errors that reading a truncated or altered npz, its JSON or an observer's arrays raises."""

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class NotFinite:
    """NaN or Inf in an activation."""

    batch: int
    values: str

    def __str__(self) -> str:
        return f"{self.values} in batch {self.batch} of the samples"


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics that the observers have gathered.

    Attributes:
        model_hash: of the canonical float model that was run.
        observers: tensor name -> its observer; treat them as read-only.
        batches: global number of each batch that was seen -> CRC-32 of its arrays.
        counts: tensor name -> number of batches that reached it; fewer than all inside an If.
        not_finite: tensor name -> NaN or Inf that it had; its observer has seen nothing.
        shards: parts of the samples that were observed; none where that is not known.
        samples: how these looked.
        stopped: whether the run ended before its samples did; going on from it takes that back.
        probed: tensor name -> observer of what errors become behind it (see static/noise).
    """

    model_hash: str
    observers: Mapping[str, Observer]
    batches: Mapping[int, int]
    counts: Mapping[str, int]
    not_finite: Mapping[str, NotFinite] = field(default_factory=dict)
    shards: frozenset[Shard] = frozenset()
    samples: SeenSamples = field(default_factory=SeenSamples)
    stopped: bool = False
    probed: Mapping[str, Observer] = field(default_factory=dict)

    __repr__ = brief
    _repr_html_ = card_of

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
                f"has {model_hash[:12]}): its graph or weights changed, or an onnxq "
                "that reads the graph otherwise made them. Calibrate again."
            )

    def notes(self) -> list[str]:
        """Notes on samples and shards that are missing, and on samples that look like a mistake."""
        stopped = [
            f"the calibration was stopped after {len(self.batches)} batches, before its samples "
            "ended. Go on with the same command and --resume."
        ]
        missing = notes_on_missing(self.shards)
        return [*(stopped if self.stopped else ()), *missing, *self.notes_on_samples()]

    def notes_on_samples(self) -> list[str]:
        """Notes on samples that look like a mistake."""
        same = []
        if len(self.batches) > 1 and len(set(self.batches.values())) == 1:
            same = [f"all {len(self.batches)} batches of the samples are the same one."]
        return [*same, *self.samples.notes()]

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
        not_finite = _firsts(self.not_finite, other.not_finite)
        merged = {
            n: seen.spec() if n in not_finite else _merged(n, seen, other.observers[n])
            for n, seen in self.observers.items()
        }
        batches = dict(sorted({**self.batches, **other.batches}.items()))
        counts = {n: self.counts.get(n, 0) + other.counts.get(n, 0) for n in self.observers}
        return Statistics(
            self.model_hash,
            MappingProxyType(merged),
            MappingProxyType(batches),
            MappingProxyType(counts),
            MappingProxyType(not_finite),
            self.shards | other.shards,
            self.samples.merged(other.samples),
            self.stopped or other.stopped,
            MappingProxyType(
                {
                    n: _merged(n, seen, other.probed[n])
                    for n, seen in self.probed.items()
                    if n in other.probed
                }
            ),
        )

    def save(self, path: str | Path) -> None:
        """Writes a .stats file, which is there whole or not at all.

        Raises:
            OutputError: the file cannot be written.
        """
        # savez takes arrays of any name as keywords, its stub one of them as a flag
        write_atomically(path, lambda file: np.savez_compressed(file, **self._arrays()))  # type: ignore[arg-type]  # as said

    def _arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays of a .stats file, by name."""
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "header": np.frombuffer(json.dumps(self._header()).encode(), np.uint8),
            "batches": np.array(list(self.batches), np.int64),
            "checks": np.array(list(self.batches.values()), np.uint32),
            "counts": np.array([self.counts.get(n, 0) for n in self.observers], np.int64),
        }
        observers = (*self.observers.values(), *self.probed.values())
        for number, observer in enumerate(observers):
            for key, array in observer.state().items():
                arrays[f"{number}/{key}"] = np.asarray(array)
        return arrays

    def __reduce__(self) -> tuple[Callable[[bytes], Statistics], tuple[bytes]]:
        """Pickles as the arrays of a .stats file, so that processes can hand statistics over.

        Compressed quickly: of 3.8 MB of a MobileNetV2, 0.3 are sent, for 20 ms of CPU time.
        """
        return _from_bytes, (zlib.compress(pickle.dumps(self._arrays(), 5), QUICKLY),)

    def _header(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "model_hash": self.model_hash,
            "tensors": _listed(self.observers),
            "probed": _listed(self.probed),
            "not_finite": plain(self.not_finite),
            "shards": plain(sorted(self.shards)),
            "samples": plain(self.samples),
            "stopped": self.stopped,
        }

    @classmethod
    def load(cls, path: str | Path) -> Statistics:
        """The Statistics of a .stats file.

        Raises:
            CalibrationError: the file is missing, damaged, no .stats file, or of a newer onnxq.
            QConfigError: it names an observer class that is not imported.
        """
        if why := why_no_file(path):
            raise CalibrationError(f"statistics '{path}': {why}. Give a .stats file.")
        with Path(path).open("rb") as file:
            return _read(lambda: _arrays(file, f"'{path}'"), f"'{path}'")


def _listed(observers: Mapping[str, Observer]) -> list[dict[str, object]]:
    return [{"name": n, "observer": observer.spec.to_dict()} for n, observer in observers.items()]


def _merged(tensor: str, ours: Observer, theirs: Observer) -> Observer:
    try:
        return ours.merge(theirs)
    except CalibrationError as error:
        raise CalibrationError(f"tensor '{tensor}': {error}") from error


def _firsts(ours: Mapping[str, NotFinite], theirs: Mapping[str, NotFinite]) -> dict[str, NotFinite]:
    """Tensor -> the value that is not finite in the earlier batch."""
    both = [*ours.items(), *theirs.items()]
    return dict(sorted(both, key=lambda item: (item[0], -item[1].batch)))


def _from_bytes(data: bytes) -> Statistics:
    return _read(lambda: pickle.loads(zlib.decompress(data)), "that were pickled")


def _read(arrays_of: Callable[[], Arrays], where: str) -> Statistics:
    """Statistics of what `_arrays` gave."""
    try:
        arrays = arrays_of()
        return _restored(json.loads(arrays["header"].tobytes()), arrays, where)
    except DAMAGED as error:
        raise CalibrationError(
            f"statistics {where} cannot be read ({type(error).__name__}: "
            f"{why_unreadable(error)}): the file is damaged or no .stats file. Calibrate again."
        ) from error


def _restored(header: dict[str, object], arrays: Arrays, where: str) -> Statistics:
    if header["format"] != FORMAT or header["version"] not in READ_VERSIONS:
        raise CalibrationError(
            f"statistics {where} have format {header['format']} {header['version']}; this onnxq "
            f"reads {FORMAT} {VERSION}. Calibrate again, or update onnxq."
        )
    states: dict[int, dict[str, npt.NDArray[np.generic]]] = {}
    for name, array in arrays.items():
        number, slash, key = name.partition("/")
        if slash:
            states.setdefault(int(number), {})[key] = array
    tensors, probed = header["tensors"], header.get("probed", [])
    if not isinstance(tensors, list) or not isinstance(probed, list):
        raise TypeError("tensors")
    observers: list[tuple[str, Observer]] = []
    for i, tensor in enumerate((*tensors, *probed)):
        try:
            spec = ObserverSpec.from_dict(tensor["observer"])
            observers.append((str(tensor["name"]), spec.restore(states.get(i, {}))))
        except OnnxqError as error:
            raise type(error)(f"statistics {where}: tensor '{tensor['name']}': {error}") from error
    observed = dict(observers[: len(tensors)])
    batches = dict(
        zip(_numbers(arrays, "batches"), _numbers(arrays, "checks", 1 << 32), strict=True)
    )
    return Statistics(
        str(header["model_hash"]),
        MappingProxyType(observed),
        MappingProxyType(batches),
        MappingProxyType(dict(zip(observed, _numbers(arrays, "counts"), strict=True))),
        MappingProxyType(read(Mapping[str, NotFinite], header.get("not_finite", {}))),
        frozenset(read(tuple[Shard, ...], header.get("shards", []))),
        read(SeenSamples, header.get("samples", {})),
        read(bool, header.get("stopped", False)),
        MappingProxyType(dict(observers[len(tensors) :])),
    )


def _numbers(arrays: Arrays, key: str, limit: int = 1 << 63) -> list[int]:
    array = arrays[key]
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"'{key}' is {array.dtype} of shape {array.shape}")
    numbers: list[int] = array.tolist()
    if min(numbers, default=0) < 0 or max(numbers, default=0) >= limit:
        raise TypeError(f"'{key}' has numbers that are negative, or {limit} or more")
    return numbers


def _arrays(file: BinaryIO, where: str) -> dict[str, npt.NDArray[np.generic]]:
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise TypeError("a single array")
    if loaded.zip is not None and is_bomb(*loaded.zip.infolist()):
        raise TypeError("its arrays unpack to far more than statistics have")
    if "header" not in loaded.files:
        raise CalibrationError(
            f"statistics {where}: this is an npz with the arrays "
            f"{', '.join(loaded.files[:3]) or 'none'}, and no .stats file. Make one with "
            "`onnxq calibrate`; arrays to calibrate on are given as samples, without --stats."
        )
    return {name: loaded[name] for name in loaded.files}

"""Integers of weights in one file, layer after layer, as they are made; a journal, too.

    {"format": ..., "model_hash": ..., ...}          the head: what the integers are of
    {"key": "node", "arrays": [...], "crc": ...}     a line, filled up with blanks
    <bytes of the arrays>                            each at a multiple of ALIGNMENT

A record is on the disk before the next layer begins. A process that is killed leaves whole
records, and perhaps a part of one, which the next `open` cuts off. Arrays are read where they lie:
what a model of any size needs in memory is the record that is being written.
"""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from io import BufferedRandom
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import onnx_ir as ir

from onnxq.core.append_only import AppendOnlyFile, RecordsHead, begin
from onnxq.core.arrays import Array
from onnxq.core.saved import UNREADABLE
from onnxq.core.version import VERSION
from onnxq.graph.hashing import model_hash
from onnxq.samples.batches import crc_of
from onnxq.samples.inputs import Batch
from onnxq.weights.weight_plan import WeightPlan

ALIGNMENT = 64
"""Bytes of a cache line: kernels read arrays that begin at one."""
CHUNK_BYTES = 1 << 24

Tensors = dict[str, ir.TensorProtocol]


@dataclass(frozen=True)
class QuantizedWeightsHead(RecordsHead):
    """First line of the file: what its integers are of."""

    FORMAT: ClassVar[str] = "onnxq integers 1"
    NOUN: ClassVar[str] = "a journal of quantize-weights"
    WORDS: ClassVar[Mapping[str, str]] = {
        "plan": "other bits, group size, scheme, method, or nodes"
    }

    model_hash: str
    samples: str
    plan: str
    versions: str


@dataclass(frozen=True, slots=True)
class _Placed:
    """An array of a record."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class QuantizedWeightsFile(AppendOnlyFile):
    """Arrays of layers by key, in a file that can be gone on with, or in memory.

    Its tensors stay readable when it is closed, for as long as the file is there.
    """

    def __init__(
        self,
        path: Path | None = None,
        file: BufferedRandom | None = None,
        records: Mapping[str, Sequence[_Placed]] | None = None,
    ) -> None:
        super().__init__(path, file)
        self._found = {key: self._tensors(placed) for key, placed in (records or {}).items()}

    @classmethod
    def open(cls, path: str | Path | None, head: QuantizedWeightsHead) -> Self:
        """The integers in that file, begun where there is none."""
        if path is None:
            return cls()
        records: dict[str, list[_Placed]] = {}

        def whole(file: BufferedRandom) -> int:
            found, length = _whole_records(file)
            records.update(found)
            return length

        target, file = begin(path, head, "quantize-weights", whole)
        made = cls(target, file, records)
        if not file.tell():
            made.write(_line(head.to_dict(), 0))
        return made

    def find(self, key: str) -> Tensors | None:
        """Tensors of the key, by name; None: it has none yet."""
        return self._found.get(key)

    def append(self, key: str, arrays: Mapping[str, Array]) -> Tensors:
        """Adds a record, which is on the disk when this returns.

        Returns:
            The arrays as tensors, which a file is mapped for when they are read.
        """
        if self._file is None:
            made: Tensors = {name: ir.tensor(array, name=name) for name, array in arrays.items()}
        else:
            made = self._tensors(self._record(key, arrays))
        self._found[key] = made
        return made

    def __len__(self) -> int:
        return len(self._found)

    def _record(self, key: str, arrays: Mapping[str, Array]) -> list[_Placed]:
        assert self._file is not None
        start, placed, crc = self._file.tell(), [], 0
        flat = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        end = 0
        for name, array in flat.items():
            dtype = ir.DataType.from_numpy(array.dtype).name
            placed.append(_Placed(name, dtype, array.shape, end, array.nbytes))
            end += _filled(array.nbytes)
            crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
        rows = [[p.name, p.dtype, list(p.shape), p.offset, p.nbytes] for p in placed]
        line = _line({"key": key, "arrays": rows, "bytes": end, "crc": crc}, start)
        pieces: list[bytes | memoryview] = [line]
        for array in flat.values():
            pieces += [
                array.reshape(-1).view(np.uint8).data,
                bytes(_filled(array.nbytes) - array.nbytes),
            ]
        self.write(*pieces)
        return _moved(placed, start + len(line))

    def _tensors(self, placed: Sequence[_Placed]) -> Tensors:
        assert self._path is not None
        return {
            p.name: ir.ExternalTensor(
                self._path.name,
                p.offset,
                p.nbytes,
                ir.DataType[p.dtype],
                shape=ir.Shape(p.shape),
                name=p.name,
                base_dir=str(self._path.parent),
            )
            for p in placed
        }


def _filled(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _moved(placed: Sequence[_Placed], start: int) -> list[_Placed]:
    return [_Placed(p.name, p.dtype, p.shape, p.offset + start, p.nbytes) for p in placed]


def _line(data: Mapping[str, object], start: int) -> bytes:
    """The data as a line that begins at `start` and ends at a multiple of ALIGNMENT."""
    text = json.dumps(data, allow_nan=False).encode()
    return text.ljust(_filled(start + len(text) + 1) - start - 1) + b"\n"


def _whole_records(file: BufferedRandom) -> tuple[dict[str, list[_Placed]], int]:
    """(records by key, bytes up to the end of the last whole one); 0 where the head is torn."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.readline()
    records: dict[str, list[_Placed]] = {}
    length = len(head) if head.endswith(b"\n") else 0
    for key, placed, end in _records(file, size) if length else ():
        records[key] = placed
        length = end
    return records, length


def _records(file: BufferedRandom, size: int) -> Iterator[tuple[str, list[_Placed], int]]:
    """(key, arrays, end) of each record up to the first that is not whole."""
    while line := file.readline():
        start = file.tell()
        try:
            data = json.loads(line)
            placed = [_Placed(n, d, tuple(s), o, b) for n, d, s, o, b in data["arrays"]]
            key, end, crc = str(data["key"]), start + int(data["bytes"]), int(data["crc"])
        except UNREADABLE:
            return
        if not line.endswith(b"\n") or end > size:
            return
        if any(_is_apart(p) for p in placed) or crc != _crc(file, _moved(placed, start)):
            return
        file.seek(end)
        yield key, _moved(placed, start), end


def _is_apart(placed: _Placed) -> bool:
    """Whether the array's size is not that of its type and shape."""
    bits = ir.DataType[placed.dtype].bitwidth * math.prod(placed.shape)
    return placed.nbytes != -(-bits // 8)


def _crc(file: BufferedRandom, placed: Sequence[_Placed]) -> int:
    crc = 0
    for each in placed:
        file.seek(each.offset)
        for start in range(0, each.nbytes, CHUNK_BYTES):
            crc = zlib.crc32(file.read(min(CHUNK_BYTES, each.nbytes - start)), crc)
    return crc


def quantized_weights_head(
    model: ir.Model, plan: WeightPlan, batches: Iterable[Batch]
) -> QuantizedWeightsHead:
    """Head of the integers that a plan wants; every weight and every sample is read."""
    crc = 0
    for batch in batches:
        crc = crc_of(batch, crc)
    asked = repr(sorted((name, d.spec, d.method.value) for name, d in plan.quantized.items()))
    return QuantizedWeightsHead(
        model_hash(model),
        f"{crc:08x}" if crc else "",
        hashlib.blake2b(asked.encode(), digest_size=16).hexdigest(),
        f"onnxq {VERSION}, onnxruntime {version('onnxruntime')}",
    )

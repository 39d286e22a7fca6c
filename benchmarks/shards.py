"""Time and memory of merging the statistics of many shards, and the bytes that workers send.

    python -m benchmarks shards

Shards are parts of 16 images of the embedded calibration images, observed once; for thousands of
them, these are merged again and again under other batch numbers. Each row of the first table is a
process of its own: the memory is what it grew by. "one by one" is total = total.merge(shard).
"""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.apart import apart
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from models.cifar10 import load_sample
from onnxq.static.merging import Merging
from scripts._models import float_models

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Singles
    from onnxq.static.statistics import Statistics

TRAVELLING = (
    *("Prepared, by its path", "Prepared, by its bytes", "a part by value"),
    *("its statistics", "as a .stats file"),
)
MERGED = Table(
    "merging",
    {"observers": "", "merged": "", "shards": ",", "ms per shard": ".2f", "MiB": ".0f"},
    keys=3,
)
BYTES = Table("bytes", {"observers": "", **dict.fromkeys(TRAVELLING, ","), "tensors": ""})
MODEL = "mobilenetv2"
RESET = "5"  # forgets the highest memory so far
COUNTS = (100, 1_000, 10_000)
ONE_BY_ONE = (100, 1_000)
IMAGES = 16  # of a shard: MOST_BATCHES batches of one image
OBSERVERS = ("default", "minmax")


def shards(kept: Path, count: int) -> Iterator[Statistics]:
    """So many Statistics: those of the file, in turns, under numbers of their own."""
    observed: list[Statistics] = pickle.loads(kept.read_bytes())
    for number, statistics in zip(range(count), itertools.cycle(observed), strict=False):
        first = number * IMAGES
        checks = statistics.batches.values()
        batches = {first + i: check for i, check in enumerate(checks)}
        yield dataclasses.replace(statistics, batches=batches)


def merge(kept: Path, count: int, how: str) -> tuple[float, float]:
    """(CPU seconds, MiB that the process grew by) of merging so many."""
    source = shards(kept, count)
    total = next(source)
    before, begun = memory_mib("VmRSS"), time.process_time()
    merging = Merging()
    merging.add(total)
    for each in source:
        if how == "Merging":
            merging.add(each)
        else:
            total = total.merge(each)
    if how == "Merging":
        total = merging.merged()
    seconds = time.process_time() - begun
    assert len(total.batches) == count * IMAGES
    return seconds, memory_mib("VmHWM") - before


def memory_mib(key: str) -> float:
    """Memory of this process: VmRSS as it is now, VmHWM the most since that was asked for."""
    if key == "VmRSS":
        Path("/proc/self/clear_refs").write_text(RESET)
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))


def observe(path: Path, images: Singles, observer: str) -> tuple[Path, dict[str, int]]:
    """(file with Statistics of parts, bytes that travel)."""
    import onnxq
    from onnxq.observers import MinMaxObserver
    from onnxq.qconfig import QConfigMapping, get_default_qconfig
    from onnxq.static.prepare import prepare

    mapping = None
    if observer == "minmax":
        config = get_default_qconfig()
        mapping = QConfigMapping(dataclasses.replace(config, activation=MinMaxObserver.with_args()))
    prepared = prepare(path, mapping)
    parts = [images[i : i + IMAGES] for i in range(0, len(images), IMAGES)]
    seen = [onnxq.calibrate(prepared, {prepared.inputs[0].name: part}, threads=1) for part in parts]
    kept, file = path.with_suffix(f".{observer}.pickle"), path.with_suffix(".stats")
    kept.write_bytes(pickle.dumps(seen))
    seen[0].save(file)
    sizes = {
        "Prepared, by its path": len(pickle.dumps(prepared)),
        "Prepared, by its bytes": len(pickle.dumps(dataclasses.replace(prepared, origin=None))),
        "a part by value": parts[0].nbytes,
        "its statistics": len(pickle.dumps(seen[0])),
        "as a .stats file": file.stat().st_size,
        "tensors": len(seen[0].observers) + len(seen[0].probed),
    }
    return kept, sizes


@benchmark(MERGED, BYTES, needs=("torch",))
def measure() -> Iterator[Row]:
    """Merging by observer, way and number of shards; then the bytes that travel."""
    travels = {}
    images = load_sample("calibration")[0]
    with tempfile.TemporaryDirectory() as folder:
        model = next(m for m in float_models(Path(folder), images) if m.name == MODEL)
        for observer in OBSERVERS:
            kept, travels[observer] = observe(model.path, images, observer)
            for how, counts in (("Merging", COUNTS), ("one by one", ONE_BY_ONE)):
                for count in counts:
                    seconds, mebibytes = apart(merge, kept, count, how)
                    yield MERGED.row(observer, how, count, 1000 * seconds / count, mebibytes)
    for observer, sizes in travels.items():
        yield BYTES.row(observer, *(sizes[column] for column in TRAVELLING), sizes["tensors"])

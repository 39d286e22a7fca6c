"""Models of many kinds: the default beside float, other ways, and onnxruntime.quantization.

    python -m benchmarks defaults                           # all of them, some 15 CPU minutes
    python -m benchmarks defaults transformer bert_block    # those alone

Each model (scripts/_defaults) is quantized in these ways: default: `onnxq.quantize(model, samples,
target="x86-vnni")`, no other option. portable: the same for that target. all integers: every node
that can. linear layers only: MatMul and Gemm with constant weights in integers by MinMax, with
float results, everything else in float. dynamic: `onnxq.quantize_dynamic(model)`. quantize_static
and quantize_dynamic: of onnxruntime.quantization, per channel.

dB: SQNR of the first output against float's, on samples that nothing was calibrated on. Time: CPU
time over float's, one thread, batch 1, in turns with float: median of 31 pairs, and its interval of
95%; below 1 is faster than float. Size: of the file over float's. Score: share of right answers.
A bound that the default misses is named below the tables, and makes the exit code 1.

vit_stem needs weights that are not kept here: see scripts/train_vit_stem.py.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import RATIO, Missed, Row, Table
from scripts._architectures import Size
from scripts._defaults import SUBJECTS
from scripts._defaults.demand import unmet
from scripts._defaults.measured import UNTIMED, WAYS
from scripts._defaults.measured import Row as Figures
from scripts._defaults.measured import measure as figures_of
from scripts._ways import Way

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIMED = tuple(way for way in WAYS if way not in UNTIMED)
SIZED = (Way.DEFAULT, Way.DYNAMIC)
FAILS = "fails"
MODELS = Table(
    "models",
    {
        "model": "",
        **{f"dB: {way.value}": ".1f" for way in WAYS},
        **{f"time: {way.value}": RATIO for way in TIMED},
        **{f"size: {way.value}": ".2f" for way in SIZED},
        **{"score: float": ".3f", "default": ".3f"},
    },
)


def rows(found: Figures) -> Iterator[Row]:
    """A row per condition of the samples."""
    default = found.figures.get(Way.DEFAULT)
    for condition in default.ratio if default else [""]:
        figures = found.figures
        yield MODELS.row(
            f"{found.name}, {condition}" if condition else found.name,
            *(figures[w].sqnr_db if w in figures else FAILS for w in WAYS),
            *(figures[w].ratio[condition].cell if w in figures else FAILS for w in TIMED),
            *(figures[w].size if w in figures else FAILS for w in SIZED),
            found.float_score,
            None if default is None else default.score,
        )


@benchmark(MODELS, needs=("torch",))
@with_names(SUBJECTS)
def measure(names: Sequence[str]) -> Iterator[Row | Missed]:
    """The rows of each model, and the bounds that its default misses."""
    for name in names or SUBJECTS:
        subject = SUBJECTS[name]
        try:
            with tempfile.TemporaryDirectory() as folder:
                found = figures_of(name, subject.make(Size.REAL, Path(folder)), Path(folder))
        except FileNotFoundError as error:  # weights that are not kept here
            yield Missed(f"{name}: not measured: {error}")
            continue
        yield from rows(found)
        for each in unmet(found, subject.demand):
            yield Missed(f"{name}: {each}")
        for way, text in found.failed.items():
            yield Missed(f"{name}, {way.value}: {text}")

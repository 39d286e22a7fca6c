"""Models of many kinds: the default beside float, other ways, and onnxruntime.quantization.

    python -m benchmarks defaults --results FOLDER          # all of them, some 15 CPU minutes
    python -m benchmarks defaults transformer bert_block    # those alone

Each model (scripts/_defaults) is quantized in these ways:
default: `onnxq.quantize(model, samples, target="x86-vnni")`, no other option. portable: the same
for that target. all integers: every node that can. products: MatMul and Gemm with constant weights
in integers by MinMax, with float results, everything else in float. dynamic:
`onnxq.quantize_dynamic(model)`. quantize_static and quantize_dynamic: of onnxruntime.quantization,
per channel.

dB: SQNR of the first output against float's, on samples that nothing was calibrated on. Time: CPU
time over float's, one thread, batch 1, in turns with float: median of 31 pairs, and its interval of
95%; below 1 is faster than float. Size: of the file over float's. Score: share of right answers.
A bound that the default misses is named below the tables, and makes the exit code 1.

With --results, each model's figures go into FOLDER/NAME.json, and those that are there are not
measured again. vit_stem needs weights that are not kept here: see scripts/train_vit_stem.py.
The tables that this printed are in benchmarks/results/defaults.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._architectures import Size
from scripts._defaults import SUBJECTS
from scripts._defaults.demand import unmet
from scripts._defaults.measured import UNTIMED, WAYS, Row, measure
from scripts._tables import head, line
from scripts._ways import Way

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMED = tuple(way for way in WAYS if way not in UNTIMED)


def table(rows: list[Row]) -> Iterator[str]:
    """Lines of one table of Markdown: a row per model and condition."""
    yield head(
        "model",
        *(f"dB: {way.value}" for way in WAYS),
        *(f"time: {way.value}" for way in TIMED),
        *(f"size: {way.value}" for way in (Way.DEFAULT, Way.DYNAMIC)),
        "score: float",
        "default",
    )
    for row in rows:
        default = row.figures.get(Way.DEFAULT)
        for condition in default.ratio if default else [""]:
            yield line(
                f"{row.name}, {condition}" if condition else row.name,
                *(f"{row.figures[w].sqnr_db:.1f}" if w in row.figures else "fails" for w in WAYS),
                *(
                    str(row.figures[w].ratio[condition]) if w in row.figures else "fails"
                    for w in TIMED
                ),
                *(
                    f"{row.figures[w].size:.2f}" if w in row.figures else "fails"
                    for w in (Way.DEFAULT, Way.DYNAMIC)
                ),
                "-" if row.float_score is None else f"{row.float_score:.3f}",
                "-" if default is None or default.score is None else f"{default.score:.3f}",
            )


def figures(name: str, results: Path | None) -> Row:
    """The figures of a model, from the folder if they are there.

    Raises:
        FileNotFoundError: the model needs weights that are not there.
    """
    kept = results / f"{name}.json" if results is not None else None
    if kept is not None and kept.is_file():
        return Row.from_json(kept.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        row = measure(name, SUBJECTS[name].make(Size.REAL, Path(folder)), Path(folder))
    if kept is not None:
        kept.write_text(row.to_json(), encoding="utf-8")
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUBJECTS))
    parser.add_argument("--results", type=Path, help="folder of what is measured, and was")
    args = parser.parse_args()
    names = args.names or list(SUBJECTS)
    if unknown := set(names) - set(SUBJECTS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if args.results is not None:
        args.results.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)  # of torch's exporter and of the peer
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[Row] = []
    misses: list[str] = []
    for name in names:
        try:
            row = figures(name, args.results)
        except FileNotFoundError as error:
            misses.append(f"- {name}: not measured: {error}")
            continue
        rows.append(row)
        misses += [f"- {name}: {each}" for each in unmet(row, SUBJECTS[name].demand)]
        misses += [f"- {name}, {way.value}: {text}" for way, text in row.failed.items()]
        print(f"{name}: measured", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    if misses:
        print("\n".join(["", *misses]))
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())

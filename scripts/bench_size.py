"""Sizes of quantized files: of the working tree, of a commit, and of onnxruntime.quantization.

    python scripts/bench_size.py --against e8853b9

The nets and their files are those of scripts/same_bytes, whose cache is used; target x86-vnni.
Sizes are over that of the float file, which torch's exporter wrote. The last column is
quantize_static's file, QDQ, per channel. The table that this printed is in scripts/bench_size.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from onnxq.graph.io import load
from scripts._peer import Batch, quantize_static
from scripts._same_bytes.trees import (
    Tree,
    cache_of,
    checked_out,
    commit_of,
    working_copy,
    write_files,
)
from scripts._tables import head, line

NETS = ("resnet20", "mobilenetv2", "transformer", "digits_lstm", "vit", "crnn", "mobilenetv3")
FORMS = {
    "QDQ": "x86-vnni.qdq.onnx",
    "QOperator": "x86-vnni.qoperator.onnx",
    "dynamic": "x86-vnni.dynamic-size.onnx",
}
FLOAT = "float.onnx"


def drawn(path: Path) -> list[Batch]:
    """One random batch of two for the float file; sizes do not depend on it."""
    random = np.random.default_rng(0)
    batch: Batch = {}
    for value in load(path).graph.inputs:
        assert value.shape is not None
        sizes = [size if isinstance(size, int) else 2 for size in value.shape]
        batch[str(value.name)] = random.standard_normal(sizes).astype(np.float32)
    return [batch]


def peer_bytes(path: Path) -> int:
    """Size of quantize_static's file."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "peer.onnx"
        quantize_static(path, made, drawn(path))
        return made.stat().st_size


def table(ours: Path, theirs: Path) -> str:
    """Markdown: a row per net, before and after in each form."""
    columns = [f"{form} {when}" for form in FORMS for when in ("before", "after")]
    lines = [head("net", "float kB", *columns, "quantize_static")]
    for net in NETS:
        floats = (theirs / net / FLOAT).stat().st_size  # what the commit's exporter wrote
        files = [folder / net / file for file in FORMS.values() for folder in (theirs, ours)]
        shares = [f"{file.stat().st_size / floats:.3f}" for file in files]
        peer = peer_bytes(ours / net / FLOAT) / floats
        lines.append(line(net, f"{floats / 1e3:.0f}", *shares, f"{peer:.3f}"))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", required=True, metavar="REV", help="the commit before")
    args = parser.parse_args()
    commit = commit_of(args.against)
    cache = cache_of(commit)
    with tempfile.TemporaryDirectory(prefix="onnxq-size-") as folder:
        with checked_out(commit) as package, working_copy() as own:
            trees = [Tree(package, cache), Tree(own, Path(folder))]
            write_files(trees, NETS, jobs=1)
        print(table(Path(folder), cache))


if __name__ == "__main__":
    main()

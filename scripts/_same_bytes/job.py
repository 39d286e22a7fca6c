"""The process that writes files with the onnxq of one tree.

    PYTHONPATH=TREE:ROOT python -P -m scripts._same_bytes.job TREE FOLDER NAME...

Each net is written into FOLDER/NAME, which appears when all of its files are there: a folder may
be filled by several processes and by several calls.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import onnxq
from scripts._same_bytes.nets import make


def write(name: str, folder: Path) -> None:
    """Writes the files of a net into folder/name."""
    part = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=folder))
    try:
        make(name, part)
        part.rename(folder / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def main() -> int:
    tree, folder, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    found = Path(onnxq.__file__).resolve().parent.parent
    if found != tree.resolve():
        raise SystemExit(f"onnxq is that of {found}, not of {tree}: is it on PYTHONPATH?")
    logging.disable(logging.WARNING)  # of torch's exporter
    warnings.simplefilter("ignore")  # of what is left in float
    failed = 0
    for name in names:
        try:
            write(name, folder)
        except Exception:  # the other nets are made; the one that failed has no files
            print(f"{name}: failed", file=sys.stderr)
            traceback.print_exc()
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())

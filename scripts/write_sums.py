"""Writes the sums of the files that the working tree makes, for scripts/same_bytes --against.

    scripts/write_sums sums.json [NAME...]

The list names the CPU and the versions that it holds for; elsewhere it is refused. The working
tree must be as committed, for the list names the commit as well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._same_bytes.lists import SumList
from scripts._same_bytes.machine import this_machine
from scripts._same_bytes.selection import add_selection, selected
from scripts._same_bytes.sums import sums
from scripts._same_bytes.trees import ROOT, Tree, commit_of, working_copy, write_files


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("list", type=Path, metavar="FILE", help="the list to write")
    add_selection(parser)
    args = parser.parse_args()
    names = selected(parser, args.names)
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if changed.stdout:
        parser.error("the working tree has changes; commit them, so that the list names a commit")
    with tempfile.TemporaryDirectory(prefix="onnxq-sums-") as folder:
        files = Path(folder)
        with working_copy() as package:
            write_files([Tree(package, files)], names, args.jobs)
        if failed := [name for name in names if not (files / name).is_dir()]:
            print(f"scripts/write_sums: not made: {', '.join(failed)}", file=sys.stderr)
            return 1
        found = {str(file.relative_to(files)): sums(file) for file in files.glob("*/*")}
    SumList(this_machine(), commit_of("HEAD"), found).write(args.list)
    print(f"{len(found)} files in {args.list}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compares the files that the working tree writes with those of a commit, byte by byte.

    scripts/same_bytes --against 46d3c0d              # all nets, some 65
    scripts/same_bytes --against main quick           # some of them, by name or by group
    scripts/same_bytes --against sums.json            # with a list that scripts/write_sums wrote

Both trees run the same code (scripts/_same_bytes/nets.py says what it makes), each in processes of
its own. A file is one of

    equal             but for metadata that names source code
    bytes differ      the integers, scales and zero points do not
    integers differ   they do, too

(scripts/_same_bytes/sums.py says precisely what is compared), and the first difference is told.
The exit code is 0 if all are equal, 1 if not, 2 if the list is another machine's. A commit's files
are kept in .cache/same_bytes; the working tree's are, where they differ.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._same_bytes.lists import OtherMachineError, SumList
from scripts._same_bytes.selection import add_selection, selected
from scripts._same_bytes.sums import first_field, first_number, read, sums
from scripts._same_bytes.trees import (
    Tree,
    cache_of,
    checked_out,
    commit_of,
    working_copy,
    write_files,
)

EQUAL, BYTES, INTEGERS, MISSING = "equal", "bytes differ", "integers differ", "not made"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a file compares; `words` tell the first difference."""

    file: str
    kind: str
    words: str = ""


def compared(file: str, ours: Path, theirs: Path) -> Verdict:
    """The verdict on a file that may be in both folders."""
    a, b = ours / file, theirs / file
    if not (a.is_file() and b.is_file()):
        maker = "the working tree" if a.is_file() else "the commit"
        return Verdict(file, MISSING, f"only {maker} makes it")
    if a.read_bytes() == b.read_bytes():
        return Verdict(file, EQUAL)
    if a.suffix != ".onnx":
        return Verdict(file, BYTES, f"{a.read_text().strip()}, was {b.read_text().strip()}")
    mine, other = read(a), read(b)
    if (words := first_number(mine, other)) is not None:
        return Verdict(file, INTEGERS, words)
    if (words := first_field(mine, other)) is not None:
        return Verdict(file, BYTES, words)
    return Verdict(file, EQUAL)


def compared_with_list(file: str, ours: Path, known: SumList) -> Verdict:
    """The verdict by sums alone."""
    path, wanted = ours / file, known.files.get(file)
    if wanted is None or not path.is_file():
        return Verdict(file, MISSING, "the list lacks it" if wanted is None else "the list has it")
    found = sums(path)
    if found == wanted:
        return Verdict(file, EQUAL)
    kind = BYTES if found.numbers_sum == wanted.numbers_sum else INTEGERS
    return Verdict(file, kind, f"--against {known.commit[:12]} tells where")


def files_in(folder: Path, names: list[str]) -> set[str]:
    """The files of these nets, as NET/FILE."""
    found = (file for name in names for file in (folder / name).glob("*"))
    return {str(file.relative_to(folder)) for file in found}


def table(names: list[str], verdicts: list[Verdict]) -> str:
    """A line per net, one more for each of its files that is not equal, and the total."""
    lines = []
    for name in names:
        own = [v for v in verdicts if v.file.startswith(f"{name}/")]
        kinds = Counter(v.kind for v in own)
        counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "no file was made"
        lines.append(f"{name:20} {counts}")
        lines += [f"    {v.file}: {v.kind}: {v.words}" for v in own if v.kind != EQUAL]
    total = Counter(v.kind for v in verdicts)
    lines.append(f"{len(verdicts)} files: " + ", ".join(f"{n} {k}" for k, n in total.items()))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", required=True, metavar="REV", help="a commit, or a list")
    add_selection(parser)
    args = parser.parse_args()
    names = selected(parser, args.names)
    files = Path(tempfile.mkdtemp(prefix="onnxq-same-bytes-"))
    if Path(args.against).is_file():
        try:
            known = SumList.read(Path(args.against))
        except OtherMachineError as error:
            print(f"scripts/same_bytes: {error}", file=sys.stderr)
            return 2
        with working_copy() as package:
            write_files([Tree(package, files)], names, args.jobs)
        wanted = {file for file in known.files if file.partition("/")[0] in names}
        every = sorted(files_in(files, names) | wanted)
        verdicts = [compared_with_list(file, files, known) for file in every]
    else:
        commit = commit_of(args.against)
        cache = cache_of(commit)
        with checked_out(commit) as package, working_copy() as own:
            write_files([Tree(package, cache), Tree(own, files)], names, args.jobs)
        every = sorted(files_in(files, names) | files_in(cache, names))
        verdicts = [compared(file, files, cache) for file in every]
        print(f"those of {commit[:12]} are in {cache}")
    print(table(names, verdicts))
    made = {v.file.partition("/")[0] for v in verdicts}
    if all(v.kind == EQUAL for v in verdicts) and made == set(names):
        shutil.rmtree(files)
        return 0
    print(f"the working tree's files are in {files}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

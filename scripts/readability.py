"""Words a sentence and lines a paragraph of README.md and docs/.

    python scripts/readability.py [--revision main~20]

Text alone counts: code, tables, headings, comments and addresses of links do not. An item of a list
is a paragraph. `--revision` reads the pages as they were at a commit.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file

from scripts._tables import head, line

ROOT = Path(__file__).resolve().parent.parent

_NO_TEXT = re.compile(
    r"```.*?^```|:::.*?^:::|<!--.*?-->|^\|.*?$|^#+ .*?$|^(?: {4,}).*?$", re.DOTALL | re.MULTILINE
)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
_INTEGER = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[*_)\"]*\s+|$")


@dataclass(frozen=True, slots=True)
class Counts:
    """Sentences and paragraphs of a text, and how long they are."""

    words: int
    sentences: int
    lines: int
    paragraphs: int
    long_sentences: int
    """Sentences of more than 25 words."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.words + other.words,
            self.sentences + other.sentences,
            self.lines + other.lines,
            self.paragraphs + other.paragraphs,
            self.long_sentences + other.long_sentences,
        )


NOTHING = Counts(0, 0, 0, 0, 0)


def paragraphs_of(text: str) -> list[str]:
    """Paragraphs of a page of Markdown, without what is no text."""
    plain = _ITEM.sub("\n\n", re.sub(r"^```.*?^```\n?", "\n", text, flags=re.DOTALL | re.MULTILINE))
    plain = _NO_TEXT.sub("", plain)
    return [each for each in re.split(r"\n\s*\n", plain) if each.strip()]


def sentences_of(paragraph: str) -> list[str]:
    """Sentences of a paragraph; a piece of code is one word."""
    words = _LINK.sub(r"\1", _INTEGER.sub("code", paragraph))
    return [" ".join(part.split()) for part in _END.split(words) if part.split()]


def counts(text: str) -> Counts:
    """Counts of a page of Markdown."""
    paragraphs = paragraphs_of(text)
    lengths = [len(one.split()) for each in paragraphs for one in sentences_of(each)]
    return Counts(
        words=sum(lengths),
        sentences=len(lengths),
        lines=sum(len(each.strip().splitlines()) for each in paragraphs),
        paragraphs=len(paragraphs),
        long_sentences=sum(length > 25 for length in lengths),
    )


def pages(revision: str | None) -> dict[str, str]:
    """README.md and the pages of docs/: path -> text."""
    if revision is None:
        paths = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
        return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}
    listed = _git("ls-tree", "-r", "--name-only", revision, "README.md", "docs")
    names = [name for name in listed.split() if name.endswith(".md")]
    return {name: _git("show", f"{revision}:{name}") for name in names}


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def row(name: str, found: Counts) -> str:
    """A line of the table."""
    per_sentence = f"{found.words / max(1, found.sentences):.1f}"
    per_paragraph = f"{found.lines / max(1, found.paragraphs):.1f}"
    share = f"{found.long_sentences / max(1, found.sentences):.0%}"
    return line(name, found.sentences, per_sentence, share, per_paragraph)


def table(texts: dict[str, str]) -> str:
    """One line a page, and one for all."""
    found = {name: counts(text) for name, text in texts.items()}
    lines = [head("page", "sentences", "words a sentence", "over 25 words", "lines a paragraph")]
    lines += [row(name, each) for name, each in found.items() if each.sentences]
    return "\n".join([*lines, row("all", sum(found.values(), NOTHING))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--revision", help="a commit; default: the files as they are")
    texts = pages(parser.parse_args().revision)
    print(table(texts))
    print(f"\nREADME.md has {len(texts['README.md'].splitlines())} lines.")


if __name__ == "__main__":
    main()

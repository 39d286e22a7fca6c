"""A function of a user's file, FILE.py:function, which other processes load by its place.

Modules beside the file can be imported, as where Python runs it; they are found there, behind all
that is installed, for imports within functions too.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from onnxq.core.regular import why_no_file
from onnxq.errors import QConfigError, first_line, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class MetricFile:
    """A function of a file; calling it calls that.

    Attributes:
        path: of the file, absolute.
        name: of the function.
        source: text of the file, so that processes without that file run the same one.
    """

    path: str
    name: str
    source: str

    @classmethod
    def of(cls, text: str, known: Sequence[str]) -> Self:
        """The function that "FILE.py:function" names.

        Args:
            text: as the user wrote it.
            known: names of metrics that are no files, for the message.

        Raises:
            QConfigError: it has another form; the file cannot be read or run, or lacks the
                function.
        """
        file, colon, name = text.rpartition(":")
        if not colon or not file.endswith(".py") or not name.isidentifier():
            raise QConfigError(
                f"metric '{text}' is not known; wanted {', '.join(known)}, or FILE.py:function."
                f"{nearest(text, known)}"
            )
        path = Path(file).absolute()
        if why := why_no_file(path):
            raise QConfigError(f"metric '{text}': file '{file}': {why}. Check the path.")
        try:
            source = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QConfigError(f"metric '{text}': {first_line(error)}.") from error
        made = cls(str(path), name, source)
        made.function()
        return made

    @property
    def fingerprint(self) -> str:
        """Hash of the source, and of the modules beside it, which tells versions apart."""
        beside = _beside(Path(self.path).parent, self.source, {})
        return hash_of("\0".join([self.source, *(beside[name] for name in sorted(beside))]))

    def function(self) -> Callable[..., object]:
        """The function.

        Raises:
            QConfigError: the file cannot be run, or has no such function.
        """
        return _function(self.path, self.name, self.source)

    def __call__(self, *arguments: object) -> object:
        """Result of the function."""
        return self.function()(*arguments)


def hash_of(source: str) -> str:
    """Hash of the text of a metric."""
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()


def _beside(folder: Path, source: str, known: dict[str, str]) -> dict[str, str]:
    """Name -> text of the modules in a folder that a source imports, and those that they do."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return known
    for name in dict.fromkeys(_imported(tree)):
        file = folder / f"{name}.py"
        if name not in known and file.is_file():
            text = file.read_text("utf-8", errors="replace")
            known = _beside(folder, text, {**known, name: text})
    return known


def _imported(tree: ast.AST) -> Iterator[str]:
    """First parts of the names of modules that are imported anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@functools.cache
def _function(path: str, name: str, source: str) -> Callable[..., object]:
    """The function of a file that is run once in a process."""
    names: dict[str, object] = {"__name__": Path(path).stem, "__file__": path}
    if (folder := str(Path(path).parent)) not in sys.path:
        sys.path.append(folder)
    try:
        # the user asked for this file to be run
        exec(compile(source, path, "exec"), names)
    except SyntaxError as error:
        raise QConfigError(
            f"metric '{path}:{name}': line {error.lineno}: {error.msg}. Mend the file."
        ) from error
    except (Exception, SystemExit) as error:  # whatever running a user's file raises
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
        place = f"line {lines[-1]}: " if lines else ""
        raise QConfigError(
            f"metric '{path}:{name}': {place}{type(error).__name__}: {first_line(error)}. Mend the "
            "file."
        ) from error
    found = names.get(name)
    if not callable(found):
        functions = [n for n, value in names.items() if callable(value) and not n.startswith("_")]
        raise QConfigError(
            f"metric '{path}' has no function '{name}'; it has {', '.join(functions) or 'none'}."
            f"{nearest(name, functions)}"
        )
    return found

"""Sphinx's configuration. `scripts/docs` builds the site; the repository is its source folder.

So a link from a page to `../../benchmarks/results/ptq.md` leads to a page here as it does on
GitHub.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

project = "onnxq"
author = "the onnxq authors"
release = version_of("onnxq")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "scripts/*.md",
    "benchmarks/results/*.md",
    "models/README.md",
    "examples/*/README.md",
]
exclude_patterns = [".*", "build", "onnxq", "operators", "tests"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # a page may go from # to ###, as the tables of benchmarks/ do
    "toc.not_included",  # tables are reached from the page that speaks of them
]

html_theme = "furo"
html_title = f"onnxq {release}"
html_extra_path = ["redirect"]
html_show_sphinx = False
html_show_copyright = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them; Args say what they mean
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
nitpick_ignore_regex = [("py:.*", ".*")]  # types are written as users write them, not as paths

_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note):$")
_LINK = re.compile(r"\[([^\]]*)\]\(([^):#]+)\)")
_MARKED = re.compile(r"(`[^`]*`)")


def as_restructured(lines: list[str]) -> list[str]:
    """A docstring's lines with its formulas as blocks, and no character that stands for markup.

    Docstrings are plain text: `x * y`, `|x|` and `scale_` mean themselves, indented lines are
    formulas or drawings, and backquotes hold code.
    """
    done: list[str] = []
    is_in_section = is_in_block = False
    for line in lines:
        is_indented = line.startswith("    ")
        if line and not is_indented:
            is_in_section, is_in_block = _SECTION.match(line) is not None, False
        elif is_indented and not is_in_section and not is_in_block and not (done and done[-1]):
            done += ["::", ""]
            is_in_block = True
        is_continued = is_indented and not is_in_section and not is_in_block
        done.append(line if is_in_block else escaped(line.lstrip() if is_continued else line))
    return done


def escaped(line: str) -> str:
    """A line whose integer is marked as code, and whose other characters mean themselves."""
    parts = _MARKED.split(line)
    return "".join(
        f"`{part}`"
        if part.startswith("`") and len(part) > 2
        else re.sub(r"([*|\\]|_\b)", r"\\\1", part)
        for part in parts
    )


def _process(
    _app: object, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    lines[:] = as_restructured(lines)


def _help(_app: object, _context: object, lines: list[str]) -> None:
    lines[:] = [escaped(line) for line in lines]


def _options(_app: object, _context: object, lines: list[str]) -> None:
    lines[:] = [re.sub(r"(?<![\\*])\*(?!\*)", r"\\*", line) for line in lines]


def _folders(app: Sphinx, name: str, source: list[str]) -> None:
    """Links to folders lead somewhere on a host of code, and nowhere here."""
    page = Path(app.srcdir) / name
    source[0] = _LINK.sub(
        lambda link: link[1] if (page.parent / link[2]).is_dir() else link[0], source[0]
    )


def setup(app: Sphinx) -> None:
    """Takes part in reading docstrings, ahead of napoleon, and help texts."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("sphinx-click-process-description", _help)
    app.connect("sphinx-click-process-epilog", _help)
    app.connect("sphinx-click-process-options", _options)
    app.connect("source-read", _folders)

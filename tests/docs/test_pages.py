"""Every page of the documentation runs, and prints what stands in it; its commands exist."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING

import click
import pytest

from onnxq.errors import VerificationError
from scripts._pages.given import MAKERS, put
from scripts._pages.page import Page, commands
from scripts._pages.session import run
from scripts.run_pages import pages
from tests.this_machine import SATURATES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts._pages.session import Shown

PAGES = pages()
RUN_ELSEWHERE = {
    "docs/guides/export.md",  # tests/pytorch/test_export_guide.py
    "docs/guides/importers.md",  # tests/pytorch/importers/test_docs.py
    "docs/guides/qat.md",  # tests/pytorch/test_qat_guide.py
    "docs/reference/qconfig.md",  # tests/qconfig/test_file_form.py
    "docs/reference/tensor_quant.md",  # tests/pytorch/tensor_quant/test_docs.py
    "docs/reference/torch_quantization.md",  # tests/pytorch/test_torch_quantization_guide.py
    "docs/tutorials/language-models.md",  # tests/language/test_language_models_guide.py
}
NOT_RUN = {
    "docs/contributing/operators.md",  # excerpts of files that other tests run
    "docs/guides/cluster.md",  # needs a cluster
    "docs/guides/costs.md",  # measures for minutes
    "docs/guides/extending.md",  # parts of examples/onnxq-example, which a test installs
    "docs/guides/import-qdq.md",  # any QAT file of yours; tests/qdq has many
    "docs/guides/measuring.md",  # any model of yours
    "docs/how-to/hub-folder.md",  # any folder of yours; tests/test_hub.py makes some
    "docs/guides/tune.md",  # minutes
    "docs/migrate/torchao.md",  # torchao logs where it finds no GPU; test_torchao.py runs the same
}
FULL_RANGE = "x86-vnni"
"""Target of most pages. Machines that saturate run them, and get another accuracy."""
BROKEN_BOUND = f"exit code {VerificationError.exit_code}"  # of integers that saturated
FAILURE = re.compile(r"^(Traceback|Usage|Error|exit code .*)", re.MULTILINE)
RUN = [
    page
    for page in PAGES
    if page.name not in RUN_ELSEWHERE | NOT_RUN and any(True for _ in page.steps())
]


def test_pages_that_are_run_elsewhere_or_not_exist() -> None:
    assert {page.name for page in PAGES} >= RUN_ELSEWHERE | NOT_RUN
    given = {name.partition(" as ")[0] for page in RUN for name in page.given}
    assert given <= set(MAKERS)


@pytest.mark.nightly(nights=3)
@pytest.mark.oracle
@pytest.mark.filterwarnings("default")  # pages are users' scripts
@pytest.mark.usefixtures("improved_here")
@pytest.mark.parametrize("page", RUN, ids=[page.name for page in RUN])
def test_a_page_prints_what_stands_in_it(page: Page, tmp_path: Path) -> None:
    for name in page.needs:
        pytest.importorskip(name)
    put(page.given, tmp_path)
    modules = set(sys.modules)
    try:
        outputs = list(run(page, tmp_path))
    finally:
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]
    assert not [each for each in outputs if not is_right(page, each)]


def is_right(page: Page, each: Shown) -> bool:
    """Whether a step printed what is shown; or failed alike, where figures are another CPU's."""
    if SATURATES and FULL_RANGE in page.text:
        came = FAILURE.findall(each.came)
        return BROKEN_BOUND in came or came == FAILURE.findall(each.shown)
    return each.agrees


def words(page: Page) -> Iterator[list[str]]:
    """The words of every command of onnxq in the page's blocks."""
    for block in page.blocks():
        if block.language not in {"", "console", "bash", "sh"}:
            continue
        is_console = block.language == "console"
        text = "\n".join(each.line for each in commands(block)) if is_console else block.text
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"[|;>]|\|\||&&", line.split("  #")[0]):
                found = re.match(r"\s*onnxq (.*)", part)
                if found:
                    yield shlex.split(found[1].replace("$(", " ").replace(")", " "))


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_and_options_exist(page: Page) -> None:
    from onnxq.cli import main  # not where tests are collected

    context = click.Context(main)
    for name, *rest in words(page):
        if name.startswith("-"):
            continue
        command = main.get_command(context, name)
        assert command is not None, name
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z][\w-]*(=|$)", word)}
        assert used <= known | {"--help", "-h"}, (name, used - known)

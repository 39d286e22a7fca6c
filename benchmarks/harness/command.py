"""The command: runs a benchmark and stores its rows, and renders or checks all pages."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any

import click

from benchmarks.harness import pages
from benchmarks.harness.benchmark import Benchmark, find, names, question
from benchmarks.harness.results import FOLDER, Results, Run
from benchmarks.harness.table import Missed, head, line

if TYPE_CHECKING:
    from benchmarks.harness.table import Row, Table

PACKAGES = ("onnxruntime", "onnx", "numpy")
SHOWN = 3
"""Differences that `--check` shows of a page."""


class Benchmarks(click.Group):
    """All benchmarks, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's
        """Names, in the order of the alphabet."""
        return names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        """The command of a benchmark."""
        return command_of(find(cmd_name)) if cmd_name in names() else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """Lists names with their questions, and imports nothing for it."""
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, question(name)) for name in names()])


@click.group(cls=Benchmarks, invoke_without_command=True)
@click.option("--check", is_flag=True, help="Fail where a page differs from the results.")
@click.option("--render", is_flag=True, help="Write the pages and the quoted figures.")
@click.pass_context
def main(ctx: click.Context, check: bool, render: bool) -> None:
    """Runs a benchmark by its name; without one, lists them."""
    if render:
        render_all()
    if check:
        ctx.exit(check_all())
    if not render and ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def all_pages() -> list[pages.Page]:
    """Every page that holds figures."""
    try:
        return [*pages.rendered(), *pages.quoting()]
    except pages.RenderError as error:
        raise click.ClickException(str(error)) from error


def render_all() -> None:
    """Writes the pages that differ from the results."""
    for page in all_pages():
        if page.before != page.after:
            page.path.write_text(page.after, encoding="utf-8")
            click.echo(f"{page.path.name}: written")


def check_all() -> int:
    """Prints where pages differ from the results; 1 if any does."""
    found = all_pages()
    differing = [page for page in found if page.before != page.after]
    for page in differing:
        click.echo("\n".join([*page.differences()][:SHOWN]), err=True)
    if differing:
        click.echo("python -m benchmarks --render writes what the results say", err=True)
        return 1
    click.echo(f"{len(found)} pages, all as the results have them")
    return 0


def command_of(benchmark: Benchmark) -> click.Command:
    """The command that runs a benchmark."""

    def run(write: bool, **options: Any) -> None:
        logging.disable(logging.WARNING)  # of torch's exporter and of the peers
        warnings.simplefilter("ignore")
        path = FOLDER / f"{benchmark.name}.json"
        results = Results.load(path)
        this = Run.now((*PACKAGES, *benchmark.needs), sys.argv[2:])
        missed: list[str] = []
        last: Table | None = None
        for found in benchmark.measure(**options):
            if isinstance(found, Missed):
                missed.append(found.text)
                continue
            show(found, last)
            last = found.table
            results.add(this, found)
            if write:  # after each row, so that nothing is lost
                results.save(path)
        for text in missed:
            click.echo(f"missed: {text}")
        sys.exit(bool(missed))

    writing = click.Option(
        ["--write"],
        is_flag=True,
        help=f"store the rows in benchmarks/results/{benchmark.name}.json",
    )
    doc = sys.modules[benchmark.measure.__module__].__doc__
    text = "\b\n" + (doc or "").replace("\n\n", "\n\n\b\n")
    return click.Command(
        benchmark.name, params=[*benchmark.options, writing], callback=run, help=text
    )


def show(row: Row, last: Table | None) -> None:
    """Prints a row, below the head of its table where the last one was of another."""
    table = row.table
    if table is not last:
        click.echo(f"\n{table.name}\n\n{head(table.columns)}")
    click.echo(line(row.cells, table.columns.values()))

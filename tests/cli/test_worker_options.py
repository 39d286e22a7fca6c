from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from onnxq.cli.worker_options import Workers, workers_options
from onnxq.errors import QConfigError
from onnxq.jobs import Processes


@click.command()
@workers_options
def command(workers: Workers) -> None:
    click.echo(f"{workers.jobs} {workers.cluster}")


def test_a_command_gets_the_options_as_one_value() -> None:
    assert CliRunner().invoke(command, []).output == "1 None\n"
    assert CliRunner().invoke(command, ["--jobs", "4"]).output == "4 None\n"
    assert CliRunner().invoke(command, ["--cluster", "dask://a:1"]).output == "1 dask://a:1\n"


def test_jobs_and_a_cluster_exclude_each_other() -> None:
    result = CliRunner().invoke(command, ["--jobs", "2", "--cluster", "dask://a:1"])
    assert result.exit_code == click.UsageError.exit_code
    assert "give --jobs or --cluster" in result.output


def test_a_wrong_address_is_refused_before_any_work() -> None:
    with pytest.raises(QConfigError, match="wanted dask://host:port"):
        Workers(1, "http://here")


def test_one_job_is_this_process_and_more_are_others() -> None:
    with Workers(1, None).executor() as executor:
        assert executor is None
    with Workers(2, None).executor() as executor:
        assert isinstance(executor, Processes)
        assert executor.max_workers == 2

"""Clusters by address: "dask://host:port", "ray://host:port", "ray://auto"."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor

from onnxq.errors import QConfigError, WorkerError, first_line, nearest
from onnxq.jobs.ray_executor import RayExecutor, imported

SCHEMES = ("dask", "ray")
WAIT_S = 30.0  # for a scheduler that does not answer


def check_address(address: str) -> tuple[str, str]:
    """(scheme, rest) of a cluster's address."""
    scheme, separator, place = address.partition("://")
    if scheme not in SCHEMES or not separator or not place:
        raise QConfigError(
            f"cluster '{address}'; wanted dask://host:port, ray://host:port, or ray://auto for the "
            f"Ray that runs on this machine.{nearest(scheme, SCHEMES)}"
        )
    return scheme, place


@contextlib.contextmanager
def connected(address: str) -> Iterator[Executor]:
    """An Executor of the cluster, until the `with` ends; the cluster itself goes on.

    Raises:
        QConfigError: the address has another form.
        UnsupportedError: the package of that cluster is not installed.
        WorkerError: nothing answers there.
    """
    scheme, place = check_address(address)
    opened = _dask(place) if scheme == "dask" else _ray(address, place)
    with opened as executor:
        yield executor


@contextlib.contextmanager
def _dask(place: str) -> Iterator[Executor]:
    distributed = imported("distributed", "dask")
    try:
        client = distributed.Client(f"tcp://{place}", timeout=WAIT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _unanswered(f"dask://{place}", error) from error
    with client:
        executor: Executor = client.get_executor()
        yield executor


@contextlib.contextmanager
def _ray(address: str, place: str) -> Iterator[Executor]:
    imported("ray", "ray")
    try:
        executor = RayExecutor("auto" if place == "auto" else address)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unanswered(address, error) from error
    with executor:
        yield executor


def _unanswered(address: str, error: Exception) -> WorkerError:
    return WorkerError(
        f"cluster '{address}' does not answer ({type(error).__name__}: {first_line(error)}). Check "
        "the address, and that its scheduler runs."
    )

"""Clusters by address: "dask://host:port"."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from onnxq.errors import QConfigError, UnsupportedError, WorkerError, first_line, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

SCHEME = "dask"
WAIT_S = 30.0  # for a scheduler that does not answer


def check_address(address: str) -> str:
    """The host and port of a cluster's address."""
    scheme, separator, place = address.partition("://")
    if scheme != SCHEME or not separator or not place:
        raise QConfigError(
            f"cluster '{address}'; wanted dask://host:port.{nearest(scheme, [SCHEME])}"
        )
    return place


@contextlib.contextmanager
def connected(address: str) -> Iterator[Executor]:
    """An Executor of the cluster, until the `with` ends; the cluster itself goes on.

    Raises:
        QConfigError: the address has another form.
        UnsupportedError: Dask is not installed.
        WorkerError: nothing answers there.
    """
    place = check_address(address)
    try:
        import distributed
    except ImportError as error:
        raise UnsupportedError(
            f"'distributed' cannot be imported ({error}). Install it: pip install 'onnxq[dask]'."
        ) from error
    try:
        client = distributed.Client(f"tcp://{place}", timeout=WAIT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkerError(
            f"cluster '{address}' does not answer ({type(error).__name__}: {first_line(error)}). "
            "Check the address, and that its scheduler runs."
        ) from error
    with client:
        executor: Executor = client.get_executor()
        yield executor

from __future__ import annotations

import pytest

from onnxq.errors import QConfigError
from onnxq.jobs.processes import check_address, connected


def test_an_address_has_a_place() -> None:
    assert check_address("dask://10.0.0.1:8786") == "10.0.0.1:8786"


@pytest.mark.parametrize("address", ["", "10.0.0.1:8786", "dask://", "tcp://10.0.0.1:8786"])
def test_another_address_is_refused_with_those_there_are(address: str) -> None:
    with pytest.raises(QConfigError, match="wanted dask://host:port"):
        connected(address).__enter__()
    with pytest.raises(QConfigError, match=r"Did you mean 'dask'\?"):
        check_address("dusk://10.0.0.1")

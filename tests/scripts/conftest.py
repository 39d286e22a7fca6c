from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Scripts silence the log of their process; here other tests come after them."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.core.locked import lock

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("wb") as second:
        lock(first)
        with pytest.raises(BlockingIOError):
            lock(second)
        first.close()
        lock(second)

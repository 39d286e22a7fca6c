from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.core.locked import is_locked_by_another

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("wb") as second:
        assert not is_locked_by_another(first)
        assert is_locked_by_another(second)
        first.close()
        assert not is_locked_by_another(second)

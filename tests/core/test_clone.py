from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onnxq.core.clone import more_paths

ROOT = Path(__file__).resolve().parents[2]


def test_a_link_or_a_folder_needs_no_other_path(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    assert more_paths(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="makes links")
def test_operators_are_found_where_the_link_is_a_text_file(tmp_path: Path) -> None:
    package = tmp_path / "onnxq"
    package.mkdir()
    for path in (ROOT / "onnxq").iterdir():
        if path.name != "operators":
            (package / path.name).symlink_to(path)
    (package / "operators").write_text("../operators")
    (tmp_path / "operators").symlink_to(ROOT / "operators")
    (package / "__init__.py").unlink()
    (package / "__init__.py").write_bytes((ROOT / "onnxq" / "__init__.py").read_bytes())
    asked = "from onnxq import catalog, operators; print(catalog.find('Conv') is not None)"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"

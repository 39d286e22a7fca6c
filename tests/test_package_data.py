"""Files that are no Python go into the wheel and the sdist."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted(path.name for path in (ROOT / "onnxq" / "page" / "templates").iterdir())


@pytest.mark.nightly
def test_templates_of_reports_are_in_the_wheel_and_in_the_sdist(tmp_path: Path) -> None:
    assert {"page.html", "page.css", "page.js", "card.html"} <= set(TEMPLATES)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    with tarfile.open(sdist) as packed_too:
        names_too = packed_too.getnames()
    for template in TEMPLATES:
        assert f"onnxq/page/templates/{template}" in names
        assert any(name.endswith(f"/onnxq/page/templates/{template}") for name in names_too)

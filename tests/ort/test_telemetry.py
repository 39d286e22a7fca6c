"""In fresh interpreters: here onnxruntime is imported already."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from onnxq.ort.telemetry import VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

SESSION = ".ses"
"""The file that the telemetry of ONNX Runtime 1.31 leaves in the temporary folder."""


def fresh(code: str, folder: Path, **variables: str) -> str:
    """The output of an interpreter without the variable, warnings as errors; files in folder."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import os, warnings\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        env=kept | {"TMPDIR": str(folder)} | variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_first_session_finds_telemetry_declined(tmp_path: Path) -> None:
    code = f"import onnxq.ort.runtime; print(os.environ['{VARIABLE}'])"
    assert fresh(code, tmp_path) == "1"
    assert not (tmp_path / SESSION).exists()


def test_what_the_user_has_set_stays_whatever_was_imported_first(tmp_path: Path) -> None:
    code = f"import onnxruntime, onnxq; print(os.environ['{VARIABLE}'])"
    assert fresh(code, tmp_path, **{VARIABLE: "0"}) == "0"


def test_onnxruntime_imported_earlier_is_told_and_warned_of_once(tmp_path: Path) -> None:
    code = """
import onnxruntime
told = []
onnxruntime.disable_telemetry_events = lambda: told.append("off")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import onnxq, onnxq.ort.runtime
print(told, [str(one.message)[:46] for one in said], said[0].filename)
"""
    said = "onnxruntime was imported before onnxq, with it"
    assert fresh(code, tmp_path) == f"['off'] ['{said}'] <string>"  # the line of the import

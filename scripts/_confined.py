"""Processes that may crash, hang or take too much: confined, and their ends in words."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import traceback
import warnings
from pathlib import Path

import onnxq

ROOT = Path(onnxq.__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
LONGEST = 200
"""Characters of an exception's text."""


def confine(limit_bytes: int) -> None:
    """Limits the memory that this process may reserve; it writes no core and says nothing."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # the parent tells of a crash
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    warnings.simplefilter("ignore")


def end_of(exit_code: int | None) -> str:
    """Name of the signal that ended a process, or its exit code."""
    if exit_code is not None and exit_code < 0:
        return signal.Signals(-exit_code).name
    return f"exit code {exit_code}"


def place_of(error: Exception) -> str:
    """The exception, and the innermost line of onnxq that it came through; else of scripts."""
    frames = [(Path(f.filename).resolve(), f) for f in traceback.extract_tb(error.__traceback__)]
    ours = [(path, f) for path, f in frames if path.is_relative_to(ROOT)]
    inner = [(path, f) for path, f in ours if not path.is_relative_to(SCRIPTS)] or ours
    where = "?"
    if inner:
        path, frame = inner[-1]
        where = f"{path.relative_to(ROOT)}:{frame.lineno}"
    return f"{where} {type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"

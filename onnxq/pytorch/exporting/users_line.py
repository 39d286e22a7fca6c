"""The line of a user's own code that an error of torch's exporter came through."""

from __future__ import annotations

import sysconfig
import textwrap
import traceback
from pathlib import Path

import torch

_FOREIGN = (*torch.__path__, str(Path(__file__).resolve().parents[2]))  # torch and onnxq
_STANDARD = sysconfig.get_paths()["stdlib"]
_INSTALLED = sysconfig.get_paths()["purelib"]  # may lie in the other, and holds models, too
WIDTH = 100


def users_line(error: BaseException) -> str:
    """Place and text of the innermost line, as the end of a message; "" where there is none.

    At model.py:12, in forward: if y.sum() > 0:
    """
    found = ""
    cause: BaseException | None = error
    while cause is not None:
        for frame in traceback.extract_tb(cause.__traceback__):
            if _is_users(frame.filename):
                code = textwrap.shorten(frame.line or "", WIDTH, placeholder=" ...")
                found = f" At {frame.filename}:{frame.lineno}, in {frame.name}: {code}"
        cause = cause.__cause__
    return found


def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return False  # made at run time
    if file.startswith(_FOREIGN):
        return False
    return file.startswith(_INSTALLED) or not file.startswith(_STANDARD)

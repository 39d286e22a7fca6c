"""Regular files, the only ones that are read: pipes hang, and devices never end."""

import os
import stat
from pathlib import Path

from onnxq.errors import kind_of

_KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a named pipe",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
    stat.S_IFSOCK: "it is a socket",
}


def why_no_file(path: str | Path) -> str:
    """Reason why the path is no regular file, links followed; empty where it is one.

    It stands behind a colon: f"'{path}' cannot be read: {why}."
    """
    if not isinstance(path, str | os.PathLike):
        return f"it is {kind_of(path)}, and no path"
    path = Path(path)
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return "it is a link to what is not there" if path.is_symlink() else "there is no such file"
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return "" if kind == stat.S_IFREG else _KINDS.get(kind, "it is no regular file")

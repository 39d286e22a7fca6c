"""Memory that this process can still get, as far as the system tells."""

from pathlib import Path

KIB = 1024
ROOT = Path("/")
OWN_GROUP = "sys/fs/cgroup"
"""Folder of the control group that a container runs in."""

KEPT_SHARE = 4
"""Arrays that are kept may take this part of the memory that is free: as much goes into what is
computed beside them, and into copies for other processes."""
KEPT_BYTES = 1 << 30
"""Bytes that they may take where nobody tells how much is free."""


def bytes_to_keep() -> int:
    """Bytes that arrays which are kept may take."""
    free = available_bytes()
    return KEPT_BYTES if free is None else free // KEPT_SHARE


def available_bytes(root: Path = ROOT) -> int | None:
    """Bytes that can be had without swapping, and within the container's limit; None: unknown."""
    found = [n for n in (_free(root), _left_of_version_2(root), _left_of_version_1(root)) if n]
    return min(found, default=None)


def _free(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    return None


def _left_of_version_2(root: Path) -> int | None:
    group = root / OWN_GROUP
    return _left(group / "memory.max", group / "memory.current", group / "memory.stat")


def _left_of_version_1(root: Path) -> int | None:
    group = root / OWN_GROUP / "memory"
    limit, used = group / "memory.limit_in_bytes", group / "memory.usage_in_bytes"
    return _left(limit, used, group / "memory.stat")


def _left(limit: Path, used: Path, statistics: Path) -> int | None:
    """Bytes that a control group may still take; cached files, which it gives back, are free."""
    most, taken = _text(limit).strip(), _text(used).strip()
    if not (most.isdecimal() and taken.isdecimal()):  # "max": no limit
        return None
    rows = (line.split() for line in _text(statistics).splitlines())
    cached = sum(int(row[1]) for row in rows if row[0] in ("inactive_file", "total_inactive_file"))
    return max(1, int(most) - int(taken) + cached)


def _text(path: Path) -> str:
    """The file's text; empty where there is none, as outside of Linux."""
    try:
        return path.read_text("ascii")
    except (OSError, ValueError):
        return ""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.core import memory
from onnxq.core.memory import available_bytes, bytes_to_keep

if TYPE_CHECKING:
    from pathlib import Path

MEMINFO = "MemTotal: 64 kB\nMemAvailable: 32 kB\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_here_it_is_a_number_of_bytes() -> None:
    found = available_bytes()
    assert found is None or found > 1 << 20


def test_the_least_of_machine_and_container_counts(tmp_path: Path) -> None:
    files = {"proc/meminfo": MEMINFO}
    assert available_bytes(write(tmp_path, files)) == 32 * 1024
    group = {"memory.max": "9000\n", "memory.current": "4000\n", "memory.stat": "inactive_file 100"}
    files = {f"sys/fs/cgroup/{name}": text for name, text in group.items()}
    assert available_bytes(write(tmp_path, files)) == 9000 - 4000 + 100
    write(tmp_path, {"sys/fs/cgroup/memory.max": "max\n"})
    assert available_bytes(tmp_path) == 32 * 1024


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    group = {"limit_in_bytes": "900", "usage_in_bytes": "400", "stat": "total_inactive_file 50"}
    files = {f"sys/fs/cgroup/memory/memory.{name}": text for name, text in group.items()}
    assert available_bytes(write(tmp_path, files)) == 550


def test_a_full_container_is_not_taken_for_an_unknown_one(tmp_path: Path) -> None:
    group = {"memory.max": "900", "memory.current": "950"}
    files = {f"sys/fs/cgroup/{name}": text for name, text in group.items()}
    assert available_bytes(write(tmp_path, files)) == 1


def test_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None


@pytest.mark.parametrize(("free", "most"), [(400, 100), (None, memory.KEPT_BYTES)])
def test_a_quarter_of_what_is_free_may_be_kept(
    free: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: free)
    assert bytes_to_keep() == most

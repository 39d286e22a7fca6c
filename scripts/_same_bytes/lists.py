"""A list of sums as JSON, with the machine and the versions that it holds for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from scripts._same_bytes.machine import Machine, this_machine
from scripts._same_bytes.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class OtherMachineError(Exception):
    """A list was made on another CPU, or with other versions."""


@dataclass(frozen=True, slots=True)
class SumList:
    """Sums of files, NET/FILE -> Sums; a refused request has the same sum twice.

    Attributes:
        machine: what they hold for.
        commit: of the working tree that made the files.
        files: the sums.
    """

    machine: Machine
    commit: str
    files: Mapping[str, Sums]

    def write(self, path: Path) -> None:
        """Writes the list, a file a line."""
        rows = {name: [one.bytes_sum, one.numbers_sum] for name, one in sorted(self.files.items())}
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
        head = {"machine": asdict(self.machine), "commit": self.commit}
        text = json.dumps(head, indent=1).removesuffix("\n}")
        path.write_text(f'{text},\n "files": {{\n{lines}\n }}\n}}\n')

    @classmethod
    def read(cls, path: Path) -> Self:
        """The list of a file.

        Raises:
            OtherMachineError: it holds for another machine or other versions than these.
        """
        data = json.loads(path.read_text())
        machine = Machine(**data["machine"])
        if differences := this_machine().unlike(machine):
            raise OtherMachineError(
                f"'{path}' does not hold here: floats may differ in their last bit, and integers "
                "with them.\n  " + "\n  ".join(differences) + "\nMake a list on this machine, from "
                f"the commit it is of: git switch --detach {data['commit'][:12]}, "
                "scripts/write_sums FILE. Or compare with the commit itself, --against "
                f"{data['commit'][:12]}."
            )
        return cls(machine, data["commit"], {k: Sums(*v) for k, v in data["files"].items()})

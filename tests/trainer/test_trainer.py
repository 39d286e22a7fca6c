"""Prepared models of transformers in Trainer, in a loop of accelerate's, and with adapters of peft.

Each way runs in a process of the environment that scripts/setup_trainer makes (train.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BATCHES = {"bert": ["input_ids", "attention_mask"], "vit": ["pixel_values"]}

pytestmark = [pytest.mark.nightly, pytest.mark.oracle]

Findings = dict[str, Any]


@pytest.fixture(scope="module")
def python() -> Path:
    """Where scripts/setup_trainer installed them."""
    folder = Path(os.environ.get("ONNXQ_TRAINER") or ROOT / ".cache" / "trainer")
    if not (folder / "stamp").is_file():
        pytest.skip("transformers, accelerate and peft are not there: run scripts/setup_trainer")
    return folder / "venv" / "bin" / "python"


def run(python: Path, way: str, model: str, folder: Path) -> Findings:
    """Findings of train.py."""
    ran = subprocess.run(
        [python, Path(__file__).parent / "train.py", way, model, folder],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: Findings = json.loads(ran.stdout.splitlines()[-1])
    return found


def check_deployed(found: Findings, model: str) -> None:
    """The converted module is the trained one, and so is the file, in every integer."""
    assert found["converted"]
    assert found["inputs"] == BATCHES[model]
    assert found["integer_nodes"]
    assert found["differing"] == 0
    assert found["exact"]


@pytest.mark.parametrize(
    ("way", "model"), [("trainer", "bert"), ("trainer", "vit"), ("loop", "bert")]
)
def test_training_that_resumes_ends_bit_for_bit_where_it_would_have(
    python: Path, way: str, model: str, tmp_path: Path
) -> None:
    found = run(python, way, model, tmp_path)
    assert found["saved"] == ["model.safetensors"]
    assert found["moved"]
    assert found["resumed_differing"] == 0
    check_deployed(found, model)


@pytest.mark.parametrize("way", ["lora_before", "lora_after", "lora_merged"])
def test_adapters_alone_are_trained_and_deployed(python: Path, way: str, tmp_path: Path) -> None:
    found = run(python, way, "bert", tmp_path)
    assert found["moved_adapters"] > found["adapters"] // 2  # B all, A where gradients reach it
    assert found["moved_others"] == []
    check_deployed(found, "bert")


def test_adapters_are_trained_over_integers_of_a_converted_model(
    python: Path, tmp_path: Path
) -> None:
    found = run(python, "lora_converted", "bert", tmp_path)
    assert found["moved_adapters"] == found["adapters"]
    assert found["moved_others"] == []
    assert found["kept"]
    assert found["matmuls_of_integers"] == found["layers"]  # export held them against the module


def test_layers_that_compute_in_integers_are_refused_by_name(python: Path, tmp_path: Path) -> None:
    found = run(python, "lora_refused", "bert", tmp_path)
    assert found["type"] == "ValueError"
    assert "QuantizedLinear" in found["words"]

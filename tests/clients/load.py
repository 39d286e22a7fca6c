"""Loads every variant of hub folders with optimum, and prints what each gives, as JSON.

    python load.py FOLDER_OF_HUB_FOLDERS REQUEST.json

It runs in the environment of scripts/setup_clients, which has an older transformers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from optimum.onnxruntime import (
    ORTModelForCausalLM,
    ORTModelForFeatureExtraction,
    ORTModelForImageClassification,
)
from transformers import AutoTokenizer

SIDE = 32
"""Pixels of an image, each way."""


def main() -> None:
    """Prints one JSON object: {file name: what the models of this variant give}."""
    folder, request = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text("utf-8"))

    def tokens(name: str) -> Any:
        made = AutoTokenizer.from_pretrained(folder / name)(request["text"], return_tensors="pt")
        return {key: made[key] for key in ("input_ids", "attention_mask")}

    def loaded(kind: Any, name: str, file: str) -> Any:
        return kind.from_pretrained(folder / name, subfolder="onnx", file_name=file)

    pixels = torch.tensor(request["pixels"]).reshape(1, 3, SIDE, SIDE)
    given = {}
    for variant, file in request["files"].items():
        encoder = loaded(ORTModelForFeatureExtraction, "encoder", file)
        vit = loaded(ORTModelForImageClassification, "vit", file)
        decoder = loaded(ORTModelForCausalLM, "decoder", file)
        said = decoder.generate(
            **tokens("decoder"), max_new_tokens=request["tokens"], do_sample=False
        )
        given[variant] = {
            "encoder": encoder(**tokens("encoder")).last_hidden_state.flatten().tolist(),
            "vit": vit(pixel_values=pixels).logits.flatten().tolist(),
            "decoder": said.flatten().tolist(),
        }
    sys.stdout.write(json.dumps(given))


if __name__ == "__main__":
    main()

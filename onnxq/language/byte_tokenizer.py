"""The tokenizer of a model whose tokens are bytes, in the files of Hugging Face's tokenizers.

Byte-level BPE without merges: each byte is written as one visible letter (GPT-2's table), and is
the token of its own number.
"""

from __future__ import annotations

BYTES = 256
_VISIBLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), BYTES))


def letters() -> dict[str, int]:
    """The letter that stands for each byte -> the byte, in the order of bytes."""
    hidden = [byte for byte in range(BYTES) if byte not in _VISIBLE]
    shown = {byte: chr(byte) for byte in _VISIBLE}
    shown |= {byte: chr(BYTES + place) for place, byte in enumerate(hidden)}
    return {shown[byte]: byte for byte in range(BYTES)}


def tokenizer_files() -> dict[str, dict[str, object]]:
    """File name -> its JSON: tokenizer.json and tokenizer_config.json."""
    plain = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    byte_level = {"type": "ByteLevel", **plain}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": letters(),
            "merges": [],
        },
    }
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1_000_000,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}

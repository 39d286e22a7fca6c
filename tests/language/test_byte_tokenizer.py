from __future__ import annotations

import json

import pytest

from onnxq.language.genai_folder import letters, tokenizer_files


def test_each_byte_has_a_visible_letter_of_its_own() -> None:
    found = letters()
    assert list(found.values()) == list(range(256))
    assert found["A"] == ord("A")
    assert found["Ġ"] == ord(" ")  # GPT-2's table, as tokenizers use it
    assert found["Ċ"] == ord("\n")
    assert not any(letter.isspace() or not letter.isprintable() for letter in found)


@pytest.mark.oracle
def test_tokenizers_read_bytes_and_give_them_back() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    text = 'é\n\x01 "x"  £ 你'
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_files()["tokenizer.json"]))
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text

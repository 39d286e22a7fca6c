from __future__ import annotations

from scripts.readability import counts, pages, paragraphs_of, sentences_of

MOST_WORDS = 30
"""Words of a sentence, at most: longer ones hold two ideas."""


def test_no_sentence_of_the_documentation_is_too_long() -> None:
    long = [
        f"{name}: {sentence}"
        for name, text in pages(None).items()
        for paragraph in paragraphs_of(text)
        for sentence in sentences_of(paragraph)
        if len(sentence.split()) > MOST_WORDS
    ]
    assert long == []


def test_integer_is_a_word_and_tables_are_none() -> None:
    found = counts("# Head\n\nOne `a b` [two](x.md). Three.\n\n| a | b |\n\n- four\n- five\n")
    assert (found.words, found.sentences, found.paragraphs) == (6, 4, 3)

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from onnxq.core.brief import MOST, brief, size_text


@dataclass
class Value:
    name: str = "v"
    few: tuple[int, ...] = (1, 2)
    many: tuple[int, ...] = tuple(range(1000))
    table: dict[str, int] = field(default_factory=lambda: dict.fromkeys(map(str, range(100)), 0))
    text: str = "x" * 1000
    hidden: int = field(default=0, repr=False)
    nothing: None = None
    empty: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return brief(self)


def test_long_collections_are_counted_and_long_texts_cut() -> None:
    text = repr(Value())
    assert text.startswith("Value(name='v', few=(1, 2), many=(1000 items), table={100 items}, ")
    assert f"text='{'x' * (MOST - 4)}..." in text


def test_what_is_empty_none_or_hidden_is_left_out() -> None:
    assert not {"hidden", "nothing", "empty"} & set(repr(Value()).replace("=", " ").split())


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (3_210_000_000, "3.21 GB")]
)
def test_sizes_have_decimal_units(size: int, text: str) -> None:
    assert size_text(size) == text

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pytest

from onnxq.core.saved import Key, OpenBounds, Saved, plain, read
from onnxq.dtypes import INT8
from onnxq.errors import CalibrationError, OutputError
from onnxq.qparams import PerChannel, QParams

if TYPE_CHECKING:
    from pathlib import Path


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Kept:
    reason: Annotated[str, Key("float")]
    aside: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    colour: Colour
    clamp: Annotated[tuple[float, float] | None, OpenBounds()] = None
    qparams: QParams | None = None


@dataclass(frozen=True)
class Book(Saved):
    FORMAT: ClassVar[str] = "book 1"
    NOUN: ClassVar[str] = "a book"
    ANEW: ClassVar[str] = "Write it anew."
    DERIVED: ClassVar[tuple[str, ...]] = ("count",)

    pages: Mapping[str, Kept | Done]
    numbers: tuple[float, ...] = ()
    pair: tuple[int, str] = (0, "")
    exact: bool = True

    @property
    def count(self) -> int:
        return len(self.pages)


QPARAMS = QParams(np.array([0.1, 3e-38], np.float32), np.zeros(2, np.int8), INT8, PerChannel(1))
BOOK = Book(
    {"a": Kept("why", aside=True), "b": Done(Colour.RED, (0.0, math.inf), QPARAMS)},
    (1.5, math.inf, -math.inf, 0.1),
    (3, "x"),
)


def strict(text: str) -> dict[str, object]:
    made = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert isinstance(made, dict)
    return made


def test_every_kind_survives_strict_json() -> None:
    assert Book.from_dict(strict(BOOK.to_json())) == BOOK


def test_a_file_holds_what_is_written_in_it(tmp_path: Path) -> None:
    BOOK.save(tmp_path / "book.json")
    assert Book.load(tmp_path / "book.json") == BOOK


def test_fields_have_keys_in_the_order_of_the_class_and_derived_ones_follow() -> None:
    assert list(BOOK.to_dict()) == ["format", "pages", "numbers", "pair", "exact", "count"]


def test_a_key_may_differ_from_the_name_and_an_open_end_is_null() -> None:
    done = plain(BOOK.pages["b"])
    assert plain(BOOK.pages["a"]) == {"float": "why"}
    assert done == {"colour": "red", "clamp": [0.0, None], "qparams": QPARAMS.to_dict()}


def test_nan_is_a_string() -> None:
    assert plain(math.nan) == "nan"
    assert math.isnan(read(float, "nan"))


def test_a_key_that_is_missing_has_its_default() -> None:
    assert Book.from_dict({"format": "book 1", "pages": {}}) == Book({})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": "book 0"}, "format: got 'book 0'; wanted 'book 1'"),
        ({"more": 1}, "Book has no 'more'"),
        ({"pages": None}, "pages: got None; wanted .*Mapping"),
        (
            {"pages": {"a": {"colour": "green"}}},
            r"pages\['a'\]\.colour: got 'green'; wanted Colour",
        ),
        ({"pages": {"a": {"reason": "why"}}}, r"pages\['a'\]: got .*; wanted .*Kept \|"),
        ({"pages": {"a": {"float": 3}}}, r"pages\['a'\]\.float: got 3; wanted str"),
        ({"numbers": [1, "many"]}, r"numbers\[1\]: got 'many'; wanted float"),
        ({"numbers": [10**400]}, r"numbers\[0\]: got 1000.*; wanted float"),
        ({"numbers": [True]}, r"numbers\[0\]: got True; wanted float"),
        ({"pair": [1]}, "zip"),
        ({"exact": 1}, "exact: got 1; wanted bool"),
        ({"pair": [2**63, "a"]}, r"pair\[0\]: got 9223372036854775808; wanted int"),
    ],
)
def test_altered_data_say_where_got_and_wanted(changed: dict[str, object], message: str) -> None:
    with pytest.raises(CalibrationError, match=f"not a book .*{message}.* Write it anew"):
        Book.from_dict({**BOOK.to_dict(), **changed})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "book 1"}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "book.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=r"book\.json: not a book that .* Write it anew"):
        Book.load(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"none\.json' cannot be read: there is no"):
        Book.load(tmp_path / "none.json")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        BOOK.save(tmp_path / "nowhere" / "book.json")

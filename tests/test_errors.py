from __future__ import annotations

import enum
import re

import pytest

from onnxq import errors
from onnxq.errors import OnnxqError, QConfigError, listed, member, nearest

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OnnxqError)
]


def test_every_error_has_an_exit_code_of_its_own_that_is_not_clicks() -> None:
    integers = [kind.exit_code for kind in KINDS]
    assert len(set(integers)) == len(integers)
    assert not {0, 2} & set(integers)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_in_the_module_docstring_says_the_integer(kind: type[OnnxqError]) -> None:
    assert re.search(rf"{kind.__name__} +{kind.exit_code} ", errors.__doc__ or "")


def test_errors_are_one_level_deep() -> None:
    assert all(OnnxqError in kind.__bases__ for kind in KINDS if kind is not OnnxqError)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("cnov1", " Did you mean 'conv1'?"), ("zzz", ""), ("conv1", " Did you mean 'conv1'?")],
)
def test_the_nearest_name_is_a_phrase_or_nothing(name: str, wanted: str) -> None:
    assert nearest(name, iter(["gemm", "conv1", "relu"])) == wanted


def test_nothing_is_near_where_nothing_is() -> None:
    assert nearest("x", []) == ""


def test_a_name_that_is_cut_short_is_near() -> None:
    known = ["CPUExecutionProvider", "CUDAExecutionProvider"]
    assert nearest("cpu", known) == " Did you mean 'CPUExecutionProvider'?"


def test_a_few_names_are_listed_and_the_rest_counted() -> None:
    assert listed(["a", "b", "c", "d"]) == "'a', 'b', 'c', 'd'"
    assert listed(["a", "b", "c", "d", "e"]) == "'a', 'b', 'c', 'd' and 1 more"


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


def test_a_member_is_found_by_itself_and_by_its_value() -> None:
    assert member(Colour, Colour.RED, "colour") is member(Colour, "red", "colour") is Colour.RED


@pytest.mark.parametrize("value", ["gren", 3, None, ["red"]])
def test_what_is_no_member_is_refused_with_those_that_are(value: object) -> None:
    with pytest.raises(QConfigError, match="is not known; known: red, green") as caught:
        member(Colour, value, "colour")
    assert ("Did you mean 'green'?" in str(caught.value)) == (value == "gren")


def test_exit_codes_are_those_of_the_errors_of_click_and_of_signals() -> None:
    assert set(errors.exit_codes()) == {0, 2, 130, 143} | {kind.exit_code for kind in KINDS}
    assert list(errors.exit_codes()) == sorted(errors.exit_codes())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one.\nand its stack"), "one"),
        (ValueError("\n two"), "two"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_first_line_of_an_error_is_never_empty(error: Exception, line: str) -> None:
    assert errors.first_line(error) == line


def test_ordinals_end_as_people_say_them() -> None:
    said = [errors.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 112)]
    assert said == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "112th"]


def test_a_first_line_has_no_escape_sequences() -> None:
    assert errors.first_line(ValueError("\x1b[1mload\x1b[0m failed.\nsecond")) == "load failed"

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.passes.equal_values import equal_values

if TYPE_CHECKING:
    from tests.graph.conftest import Parse

BODY = """g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
    a = Relu(x)  b = Identity(x)  c = Relu(b)  i = Constant<value_ints=[1]>()
    j = Constant<value_ints=[1]>()  k = Constant<value_ints=[0]>()
    d = Unsqueeze(a, i)  e = Unsqueeze(c, j)  f = Unsqueeze(a, k)
    p = RandomNormalLike(x)  q = RandomNormalLike(x)
    y = Add(p, q)  z = Sub(x, y) }"""


def test_the_same_of_the_same_is_equal_and_nothing_else_is(parse: Parse) -> None:
    found = equal_values(parse(BODY))
    names = {str(value.name): str(first.name) for value, first in found.items()}
    same = {name: first for name, first in names.items() if name != first}
    assert same == {"b": "x", "c": "a", "j": "i", "e": "d"}


def test_a_transpose_that_keeps_the_order_gives_its_input(parse: Parse) -> None:
    body = """g (float[2,3] x) => (float[2,3] y, float[3,2] z, float[3,2] w) {
        a = Transpose<perm=[0,1]>(x)  y = Relu(a)  z = Transpose<perm=[1,0]>(x)
        w = Transpose(x) }"""
    found = {str(value.name): str(first.name) for value, first in equal_values(parse(body)).items()}
    assert found == {"a": "x", "y": "y", "z": "z", "w": "w"}


def test_transposes_in_a_row_are_one(parse: Parse) -> None:
    body = """g (float[2,3,4] x) => (float[2,3,4] y, float[4,2,3] z, float[4,2,3] w) {
        a = Transpose<perm=[1,2,0]>(x)  y = Transpose<perm=[2,0,1]>(a)
        z = Transpose<perm=[1,2,0]>(a)  w = Transpose<perm=[2,0,1]>(y) }"""
    found = {str(value.name): str(first.name) for value, first in equal_values(parse(body)).items()}
    assert found == {"a": "a", "y": "x", "z": "z", "w": "z"}

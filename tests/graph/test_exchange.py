from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.exchange import ConstantExchange
from tests.examples import tensor_of

if TYPE_CHECKING:
    from tests.graph.conftest import Parse

TWICE = "g (float[2] x) => (float[2] y, float[2] z) { y = Add(x, w) z = Mul(x, w) }"
W = np.array([1, 2], "f")


def put(exchange: ConstantExchange, model: ir.Model, node: int, factor: int) -> None:
    reader = model.graph.node(node)
    tensor = tensor_of(reader.inputs[1])
    exchange.put(reader, 1, ir.tensor(tensor.numpy() * np.float32(factor)), "new", factor)


def test_readers_that_ask_for_the_same_share_it_under_the_old_name(parse: Parse) -> None:
    model = parse(TWICE, {"w": W})
    exchange = ConstantExchange(model)
    assert not exchange.modified
    for node in (0, 1):
        put(exchange, model, node, 2)
    assert exchange.modified
    exchange.share()
    assert list(model.graph.initializers) == ["w"]
    assert [str(node.inputs[1].name) for node in model.graph if node.inputs[1]] == ["w", "w"]
    np.testing.assert_array_equal(tensor_of(model.graph.initializers["w"]).numpy(), 2 * W)


def test_readers_that_ask_for_different_things_get_them(parse: Parse) -> None:
    model = parse(TWICE, {"w": W})
    exchange = ConstantExchange(model)
    put(exchange, model, 0, 2)
    put(exchange, model, 1, 3)
    exchange.share()
    got = [tensor_of(node.inputs[1]).numpy() for node in model.graph]
    np.testing.assert_array_equal(got, [2 * W, 3 * W])


def test_chains_are_shared_only_where_every_step_is_the_same(parse: Parse) -> None:
    for last, wanted in ((5, 1), (7, 2)):
        model = parse(TWICE, {"w": W})
        exchange = ConstantExchange(model)
        for node, factor in ((0, 2), (0, 5), (1, 2), (1, last)):  # the first node's both first
            put(exchange, model, node, factor)
        exchange.share()
        assert len(model.graph.initializers) == wanted
        got = [tensor_of(node.inputs[1]).numpy() for node in model.graph]
        np.testing.assert_array_equal(got, [10 * W, 2 * last * W])


def test_constants_of_different_ones_are_not_shared(parse: Parse) -> None:
    model = parse(TWICE.replace("Mul(x, w)", "Mul(x, v)"), {"w": W, "v": W})
    exchange = ConstantExchange(model)
    for node in (0, 1):
        put(exchange, model, node, 2)
    exchange.share()
    assert list(model.graph.initializers) == ["w", "v"]

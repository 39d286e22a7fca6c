"""Small decoders of other kinds, by the names of onnxruntime-genai's builder."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

WIDTH, TOKENS, HEADS, FRAMES = 32, 256, 2, 6
HEAD = WIDTH // HEADS


def _model(text: str, shapes: dict[str, tuple[int, ...]], ints: dict[str, list[int]]) -> ir.Model:
    random = np.random.default_rng(5)
    graph = onnx.parser.parse_graph(text)
    for name, shape in shapes.items():
        array = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for name, numbers in ints.items():
        array = np.array(numbers, np.int64)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = ir.from_proto(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10))
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.name = str(value.name).replace("_0_conv", ".0.conv")  # ONNX's text has no such names
    return model


def with_state() -> ir.Model:
    """A layer that keeps the last two vectors, as lfm2's convolutions do."""
    return _model(
        f"""g (int64[n, t] input_ids, float[n, {WIDTH}, 2] past_0_conv)
        => (float[n, t, {TOKENS}] logits, float[n, {WIDTH}, 2] present_0_conv) {{
            h = Gather(table, input_ids)
            c = Transpose<perm = [0, 2, 1]>(h)
            whole = Concat<axis = 2>(past_0_conv, c)
            y = Conv<group = {WIDTH}>(whole, kernel)
            present_0_conv = Slice(whole, start, end, axis)
            z = Transpose<perm = [0, 2, 1]>(y)
            logits = MatMul(z, head)
        }}""",
        {"table": (TOKENS, WIDTH), "kernel": (WIDTH, 1, 3), "head": (WIDTH, TOKENS)},
        {"start": [-2], "end": [1 << 60], "axis": [2]},
    )


def behind_encoder() -> ir.Model:
    """Attention to past tokens, then to what an encoder gives, as Whisper's decoder has it."""
    kept = f"float[n, {HEADS}, past, {HEAD}]"
    seen = f"float[n, {HEADS}, {FRAMES}, {HEAD}]"
    grown = f"float[n, {HEADS}, total, {HEAD}]"
    attention = f"com.microsoft.MultiHeadAttention<num_heads = {HEADS}"
    return _model(
        f"""g (int32[n, t] input_ids, {kept} past_key_self_0, {kept} past_value_self_0,
            {seen} past_key_cross_0, {seen} past_value_cross_0)
        => (float[n, t, {TOKENS}] logits, {grown} present_key_self_0, {grown} present_value_self_0)
        {{
            h = Gather(table, input_ids)
            q = MatMul(h, wq)
            k = MatMul(h, wk)
            v = MatMul(h, wv)
            a, present_key_self_0, present_value_self_0 = {attention}, unidirectional = 1>
                (q, k, v, "", "", "", past_key_self_0, past_value_self_0)
            b = {attention}>(a, past_key_cross_0, past_value_cross_0)
            logits = MatMul(b, head)
        }}""",
        {
            "table": (TOKENS, WIDTH),
            **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH)),
            "head": (WIDTH, TOKENS),
        },
        {},
    )


def encoder() -> ir.Model:
    """Keys and values of frames."""
    seen = f"float[n, {HEADS}, {FRAMES}, {HEAD}]"
    return _model(
        f"""g (float[n, {FRAMES}, {WIDTH}] audio_features)
        => ({seen} present_key_cross_0, {seen} present_value_cross_0) {{
            k = MatMul(audio_features, wk)
            v = MatMul(audio_features, wv)
            kh = Reshape(k, heads)
            vh = Reshape(v, heads)
            present_key_cross_0 = Transpose<perm = [0, 2, 1, 3]>(kh)
            present_value_cross_0 = Transpose<perm = [0, 2, 1, 3]>(vh)
        }}""",
        {"wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH)},
        {"heads": [0, 0, HEADS, HEAD]},
    )

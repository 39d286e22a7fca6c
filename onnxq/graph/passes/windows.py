"""Windows of convolutions and pools."""

import onnx_ir as ir


def is_padded(node: ir.Node) -> bool:
    """Whether windows of a Conv or a pool reach beyond its input."""
    auto = node.attributes.get_string("auto_pad", "NOTSET")
    return auto.startswith("SAME") or (
        auto == "NOTSET" and any(node.attributes.get_ints("pads", []))
    )

"""One file per operator; onnxq.catalog imports them all."""

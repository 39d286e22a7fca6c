"""Float ONNX graphs, read, checked and brought into one form: the only layer that knows files and protobuf."""

"""Float ONNX graphs, read, checked and brought into one form; files and protobuf end here."""

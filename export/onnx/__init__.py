"""ONNX programs: writing, checking and running `.onnx` files."""

"""Quantization: integers and scales, packing, quantization-aware training, search of a precision plan."""

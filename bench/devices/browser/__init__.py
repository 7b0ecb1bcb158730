"""Browsers as devices: a page measures an ONNX program; a server on loopback hands out files and takes one answer."""

"""Devices: where an artifact is measured. One class each, named in `registry.py`."""

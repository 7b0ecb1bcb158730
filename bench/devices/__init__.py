"""Devices that an artifact is measured on: one class each, one record each in `registry.py`."""

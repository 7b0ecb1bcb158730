"""Devices, measuring, accuracy tasks, reports."""

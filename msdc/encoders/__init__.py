"""Sentence encoders: find a model, read its layout, encode texts."""

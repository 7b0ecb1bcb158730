"""Sentence encoders of any origin behind one small interface."""

"""Vocabularies: training, reading and trimming."""

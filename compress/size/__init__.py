"""Sizes of a student before training: parameters, bytes, operations, and what fits a budget."""

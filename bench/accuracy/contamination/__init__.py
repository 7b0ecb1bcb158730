"""Test sentences in training text: exact and near duplicates."""

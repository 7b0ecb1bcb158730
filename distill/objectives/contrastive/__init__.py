"""Losses with negatives, and the memory bank that holds them."""

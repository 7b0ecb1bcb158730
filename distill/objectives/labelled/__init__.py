"""Losses on text with labels: classes of pairs, scores of pairs, domains of sentences."""

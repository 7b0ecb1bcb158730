"""Accuracy tasks, one file each, over any encoder or bundle."""

"""The module for browsers: its JavaScript sources, the files around it, and the pinned runtime."""

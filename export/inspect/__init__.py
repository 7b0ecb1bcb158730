"""The content of an artifact, read without running it."""

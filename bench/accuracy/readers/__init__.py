"""Readers of the published file formats: every refusal names the file and the line."""

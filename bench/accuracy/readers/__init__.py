"""Readers of the published file formats; error messages name the file and the line."""

"""Compiles a `tokenizer.json` into the flat file that the native core maps."""

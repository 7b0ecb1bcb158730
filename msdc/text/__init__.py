"""Texts: files of lines and scored pairs, tokenizers, batches packed by length."""

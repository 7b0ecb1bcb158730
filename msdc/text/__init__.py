"""Text to ids: tokenizers as they are stored, and batches packed by length."""

"""Training text: corpora, formats, the shuffled stream, batches."""

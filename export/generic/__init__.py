"""The generic exporter: any encoder exported as transformers and sentence-transformers compute it."""

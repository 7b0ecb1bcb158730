"""The generic way: any encoder exported as transformers and sentence-transformers compute it."""

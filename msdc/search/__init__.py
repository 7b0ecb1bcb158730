"""Search by words and by meaning: passages of documents, and the index that holds them in one SQLite file."""

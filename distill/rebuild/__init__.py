"""Build the data of a recipe from its public sources: what they are, how they are had and converted."""

"""Ways to run a recipe other than once: a sweep over its variants, and a dry run."""

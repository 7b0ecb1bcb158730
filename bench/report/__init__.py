"""Reports: one self-contained page, Markdown or JSON from result files."""

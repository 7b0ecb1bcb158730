"""Named data sets, one module per kind of data; `registry.py` lists them and resolves the words of `--tasks`."""

"""ExecuTorch programs: lowering, running, and reading `.pte` files."""

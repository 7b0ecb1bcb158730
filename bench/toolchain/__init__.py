"""Compilers, headers and packages: what builds native runners and the emulator's disk."""

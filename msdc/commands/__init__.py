"""Subcommands that belong to no other package: encode, compare, search, doctor."""

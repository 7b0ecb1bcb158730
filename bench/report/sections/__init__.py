"""The sections of a report, one file per subject; each function returns one, or None without data."""

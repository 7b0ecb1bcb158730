"""The report's sections, one file a subject; each function returns a section, or None when there is nothing to show."""

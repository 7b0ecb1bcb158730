"""Browsers as devices, of this machine or of phones: one server, one page that measures, one checked answer."""

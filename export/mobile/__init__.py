"""Modules for apps: Android and iOS around the C++ core in export/native, browsers around a port of it."""

"""The emulated phone: a small arm64 Debian with a real adbd, run by qemu."""

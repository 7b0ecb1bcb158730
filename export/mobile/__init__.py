"""Native modules for Android and iOS around the C++ core in export/native."""

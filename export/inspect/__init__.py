"""What is inside an artifact, read without running it."""

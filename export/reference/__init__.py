"""What the float model says and decides: golden vectors, the scales of smoothing, and the gates of an export."""

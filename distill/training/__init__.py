"""One stage's optimization: steps, schedule, validation, checkpoints, several processes."""

"""What a run holds: its folder, text and models, and the snapshot of a run that goes on."""

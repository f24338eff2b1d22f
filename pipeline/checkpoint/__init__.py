"""What a run leaves for later: checkpoints to resume from, and drafters for others to load."""

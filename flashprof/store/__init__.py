"""Floor 4: run folders, read and written."""

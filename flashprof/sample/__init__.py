"""Floor 4: what is attached to running processes in a profile window, and reading what it left."""

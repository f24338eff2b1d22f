"""Floor 4: starts subjects, ends them with all their descendants, and names how they ended."""

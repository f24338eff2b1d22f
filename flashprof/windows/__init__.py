"""Floor 1: events become windows, phases and lanes. Pure functions, no files."""

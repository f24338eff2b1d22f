"""Floor 2: what the numbers say and how sure they are. Pure functions of arrays and events."""

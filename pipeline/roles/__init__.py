"""One module a role; each runs in a process of its own."""

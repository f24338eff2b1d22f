"""Floor 0: the words that every other floor uses. Standard library only."""

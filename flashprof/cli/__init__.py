"""Floor 6: the command line; rendering of errors, nothing else."""

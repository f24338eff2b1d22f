"""The trainer's command line: one module a command."""

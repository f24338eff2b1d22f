"""How work and hidden states travel between roles."""

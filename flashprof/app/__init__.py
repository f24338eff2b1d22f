"""Floor 5: what is done with what: measuring, the doctor, and the one place of wiring."""

"""The reference subject: an online DFlash trainer (dispatcher → targets → hidden-state queue → drafters)."""

"""Floor 3: what to measure next, and when to stop. Pure state machines: (state, observation) → (state, action)."""

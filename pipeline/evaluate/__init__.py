"""What a drafter is worth: accuracy on held-out text, real speculative generation, and answers of the target's own."""

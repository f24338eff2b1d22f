"""The parts of a training step that are not the model."""

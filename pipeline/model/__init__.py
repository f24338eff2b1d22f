"""The target's taps and the drafter: architecture, anchors, masks, loss."""

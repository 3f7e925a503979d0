"""Long-tailed recognition: re-sampling, losses for rare classes, and transfer from common to rare classes."""

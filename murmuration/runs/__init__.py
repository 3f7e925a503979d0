"""The run directory: manifest, checkpoints, locks, and several processes that write one run."""

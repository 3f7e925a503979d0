"""Commands of the applications: `murmur continual`, `murmur prune`, `murmur superres`."""

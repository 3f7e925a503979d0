"""Whole tools built on the library's public names; see README.md."""

"""Errors, devices, files, random streams, memory, threads, signals, progress, plug-ins."""

"""The sections of a report: each is a function from `Report` to markup, empty where it has no data."""

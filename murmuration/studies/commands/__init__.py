"""Commands of the studies: `murmur explore`, `murmur reproduce`."""

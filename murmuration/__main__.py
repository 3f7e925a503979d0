"""`python -m murmuration` is `murmur`."""

import sys

from murmuration.cli import main

if __name__ == "__main__":
    sys.argv[0] = "murmur"  # the command that a run records
    sys.exit(main())

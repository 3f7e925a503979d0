"""`python -m murmuration.cli` is `murmur`."""

import sys

from murmuration.cli import main

if __name__ == "__main__":
    sys.argv[0] = "murmur"  # what a run writes down as its command
    sys.exit(main())

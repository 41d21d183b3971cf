"""``python -m flumina`` is ``flumina``."""

import sys

from flumina.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""``flumina``, and ``python -m flumina``, which is the same."""

import sys


def main() -> int:
    """Run the command; who interrupts it before it can tell that by itself sees no traceback, either."""
    try:
        from flumina.cli.main import main as command  # noqa: PLC0415 -- takes a while

        return command()
    except KeyboardInterrupt:
        print("flumina: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

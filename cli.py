"""A shim: `python cli.py ...` in a checkout is the installed command `peref ...`."""

import sys

if __name__ == "__main__":
    try:
        from peref.cli import main

        main()
    except KeyboardInterrupt:  # in the first moments, before main() minds signals
        sys.exit(130)

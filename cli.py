"""A shim: `python cli.py ...` in a checkout is the installed command `peref ...`."""

from peref.__main__ import main

if __name__ == "__main__":
    main()

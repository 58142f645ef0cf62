"""A shim: `python cli.py ...` in a checkout is the installed command `peref ...`."""

import os
import signal

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # until main() minds them: imports may lose an exception
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os._exit(128 + number))

    from peref.cli import main

    main()

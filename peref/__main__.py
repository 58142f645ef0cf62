"""The command `peref`, also as `python -m peref` and `python cli.py`. It imports next to nothing before it
minds signals: Ctrl-C while the rest is imported ends it without a word, with exit code 130.
"""

import os
import signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)


def main() -> None:
    """Mind signals, then import the commands, which mind them from then on."""
    for number in ENDING:  # an exception could be lost in an import
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os._exit(128 + number))

    from peref.cli import main

    main()


if __name__ == "__main__":
    main()

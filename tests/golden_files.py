"""What tests of the golden files share: the command line in this process, a tensor file as somebody else would write it, a small folder."""

import json
import struct

import numpy as np

from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.golden import make
from peref.golden.cases import sized


def cli(capsys, *args):
    """Exit code and what was printed to both streams."""
    code = run_cli([str(a) for a in args], Signals())
    out = capsys.readouterr()
    return code, out.out + out.err


def dumped(path, found):
    """A tensor file as somebody else would write it."""
    header, at, payload = {}, 0, b""
    for name, (dtype, x) in found.items():
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        at, payload = at + len(raw), payload + raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)
    return path


def two_cases(folder):
    """A new folder of golden files, of two small cases."""
    cases = [sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4), sized("alibi", "table", "default", "The usual.", ("basic",), T=3)]
    make.make(folder, cases)
    return folder

"""What tests of the golden files share: the command line in this process, a tensor file as somebody else
would write it, small folders.
"""

import json
import struct
from functools import cache

import numpy as np
from making import confirmed

from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.golden import SPEC_VERSION
from peref.golden.compute.vectors import described_case, folder_files, write_folder
from peref.golden.spec.book import known_flags
from peref.golden.spec.cases import sized
from peref.golden.spec.checksums import of_version


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
    cases = [
        sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4),
        sized("alibi", "table", "default", "The usual.", ("basic",), T=3),
    ]
    return folder_of(folder, cases, checked=True)


@cache
def flags():
    """What the flags of all encodings mean: in as many files as there are encodings."""
    return known_flags()


def folder_of(folder, cases, checked=False, **declared):
    """Golden files of these cases in `folder`; `declared` are refusals and laws of their one encoding."""
    for name in dict.fromkeys(case.encoding for case in cases):
        write_folder(
            folder / name,
            folder_files(
                name,
                [described_case(c, *confirmed.computed(c, checked)) for c in cases if c.encoding == name],
                flags(),
                **declared,
            ),
        )
    write_folder(folder.parent if folder.name in ("core", "full") else folder, of_version(SPEC_VERSION))
    return folder

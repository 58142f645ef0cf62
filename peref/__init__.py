"""peref: the reference for how position enters a transformer.

The letters, everywhere:

    B  batch              H  query heads          C  model width          L  length trained for
    T  query length       G  key-value heads      F  feed-forward width   V  vocabulary
    S  key length         D  head width           R  rotary width         N  length of a table of distances

    i, j  position of a query and of a key        d = i - j, positive where the key is in the past
"""

from importlib.metadata import PackageNotFoundError, version

from peref.direct import attention, bias, rotate, vjp
from peref.encodings import get, load, names

try:
    __version__ = version("peref")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+checkout"

__all__ = ["attention", "bias", "get", "load", "names", "rotate", "vjp"]

"""peref: the reference for how position enters a transformer.

The letters, everywhere:

    B  batch              H  query heads          C  model width          L  length trained for
    T  query length       G  key-value heads      F  feed-forward width   V  vocabulary
    S  key length         D  head width           R  rotary width         N  length of a table of distances

    i, j  position of a query and of a key        d = i - j, positive where the key is in the past
"""

TYPE_CHECKING = False  # typing takes longer to import than all that is here
if TYPE_CHECKING:
    from peref.direct import attention, bias, embed, mix, probabilities, rotate, score, vjp
    from peref.encodings import get, load, names

    __version__: str

OF_ENCODINGS = ("get", "load", "names")
__all__ = ["attention", "bias", "embed", "mix", "probabilities", "rotate", "score", "vjp"]
__all__ += ["get", "load", "names"]


def __getattr__(name: str) -> object:
    """What `__all__` names, imported when it is asked for: a command passes here before it minds Ctrl-C."""
    if name == "__version__":
        return version()
    if name not in __all__:
        raise AttributeError(f"module 'peref' has no attribute {name!r}")
    from peref import direct, encodings

    return getattr(encodings if name in OF_ENCODINGS else direct, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def version() -> str:
    """The version of the installed package; "0+checkout" in a clone that was never installed."""
    from importlib import metadata

    try:
        return metadata.version("peref")
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        return "0+checkout"

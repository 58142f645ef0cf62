"""What there is to test, found and not listed: every op of the package, every encoding."""

import pkgutil
from importlib import import_module

import peref
from peref.tape import Op


def modules():
    """Every module of the reference: ops and encodings."""
    for package in ("peref.ops", "peref.encodings"):
        yield import_module(package)
        for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            yield import_module(found.name)


def ops():
    """Name where it was made -> Op, for every pair of functions in the package."""
    found = {}
    for module in modules():
        for name, thing in vars(module).items():
            if isinstance(thing, Op) and thing.forward.__module__ == module.__name__:
                found[f"{module.__name__.removeprefix(peref.__name__ + '.')}.{name}"] = thing
    return found

"""What there is to test, found and not listed: every op of the package, every encoding."""

import pkgutil
from dataclasses import replace
from importlib import import_module

from generated import config, filling, tokens, weights

import peref
from peref import model
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


class Asked(dict):
    """In place of a backend's recurrences: has none, and keeps name and plain op of those that are asked
    for.
    """

    def get(self, name, plain):
        return self.setdefault(name, plain)


def recurrences():
    """Name -> plain op of every recurrence that an encoding asks the backend for."""
    asked = Asked()
    for name in filling("attend", "mix", "score"):
        cfg = config(name, layers=1)
        model.logits(cfg, weights(cfg), tokens(1, 2), be=replace(model.PLAIN, recurrences=asked))
    return dict(asked)


RECURRENCES = recurrences()


def operation(be, name):
    """What a backend does under that name: a field, or the recurrence of an encoding."""
    return be.recurrence(name, RECURRENCES[name]) if name in RECURRENCES else getattr(be, name)

"""What can go wrong in a way that is not a bug here: each error says what, which value, what was expected and what to do."""


class PerefError(Exception):
    """Base of every error raised on purpose. `kind` goes into --json output, `exit_code` to the shell."""

    kind = "failed"
    exit_code = 1


class Misuse(PerefError, ValueError):
    """The request itself is wrong: an unknown name, sizes that do not fit, an option nobody has."""

    kind = "misuse"
    exit_code = 2


class Damaged(PerefError):
    """A file is not what it claims to be."""

    kind = "damaged"


class Diverged(PerefError):
    """A loss, gradient or parameter is not finite."""

    kind = "diverged"

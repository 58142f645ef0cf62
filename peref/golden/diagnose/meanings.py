"""Which flag explains that something an encoding has is otherwise: an option, a parameter, a function that it
calls, its heads.

The recipe of an encoding says so (MEANS), and `means` in its cases.json carries it.
"""

from fnmatch import fnmatchcase

from peref.golden.diagnose.came import Came

EVERYWHERE = {("options", "base"): "rope.base.ignored", ("heads", "*"): "bias.heads"}


def flag_of(came: Came, part: str, name: str = "*", other: str = "option") -> str:
    """The flag of this option, parameter or function, of the heads; `other` where the encoding says
    nothing of it.
    """
    means = came.entry.vectors.words["means"].get(part, {})
    fitting = (flag for pattern, flag in means.items() if fnmatchcase(name, pattern))
    return means.get(name) or next(fitting, None) or EVERYWHERE.get((part, name), other)

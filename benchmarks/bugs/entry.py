"""What `check --impl benchmarks.bugs.entry:NAME` calls: `right_f64` or `BUG_f32`, each a function of case
and inputs.
"""

import numpy as np

from .right import RIGHT

WORK = {"f64": np.float64, "f32": np.float32, "f16": np.float32, "bf16": np.float32}


def rounded(x, dtype):
    """Outputs in the dtype that was asked for; they were computed in float32 for 16 bits."""
    x = np.asarray(x)
    if dtype == "bf16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16)
    return x.astype({"f64": np.float64, "f32": np.float32, "f16": np.float16}[dtype])


def program(classes, levels, dtype):
    """A function of case and inputs: None for what it does not claim, the last state of a recurrence too, for
    it came after the bugs were written.
    """

    def run(case, inputs):
        made = classes.get(case["encoding"])
        if made is None or case["level"] not in levels or case["level"] not in made.levels:
            return None
        if "before" in case["facts"]:
            return None
        with np.errstate(all="ignore"):
            found = made(case, inputs, WORK[dtype]).answer()
        return {k: rounded(x, dtype) for k, x in found.items()}

    return run


def __getattr__(name):
    bug, _, dtype = name.rpartition("_")
    if dtype not in WORK:
        raise AttributeError(name)
    if bug == "right":
        return program(RIGHT, ("table", "op", "attn", "trace"), dtype)
    from .bugs import BUGS

    if bug not in BUGS:
        raise AttributeError(name)
    return program({BUGS[bug].encoding: BUGS[bug].made()}, BUGS[bug].levels, dtype)

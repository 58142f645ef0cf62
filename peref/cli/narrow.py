"""Options that narrow golden cases to some flags, levels and encodings: check and golden show have them."""

from peref.cli import completion, options
from peref.cli.options import option
from peref.golden.spec.cases import EVERY_LEVEL

LEVEL = options.Kind("LEVEL", completion.among(*EVERY_LEVEL), str.lower)

narrowed = options.all_of(
    option("--flag flags", "Only cases with such a flag, as 'rope.layout.*'.", options.FLAGS, multiple=True),
    option(
        "--level levels",
        f"Only this level: {', '.join(EVERY_LEVEL[:-1])} or {EVERY_LEVEL[-1]}.",
        LEVEL,
        multiple=True,
    ),
    options.encodings_option("--pe=NAME encodings", "Only this encoding."),
)

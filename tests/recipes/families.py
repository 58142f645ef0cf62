"""Cases that many encodings have alike, by one call with the encoding's name; what it claims decides which of
them it has.

    usual(name)      every level with every option at its default, and each other choice of each option
    rotation(name)   layouts, widths and places of what turns
    states(name)     the last state of a recurrence, from nothing and from one that is handed in
    distances(name)  numbers of heads, and distances up to where every table ends
    rows(name)       what is added to the embedding
    together(name)   every option and every fact away from its default at once
    attention(name)  masks and groups of heads
    refusals(name)   calls without meaning
    laws(name)       what must hold whatever the numbers are

Not here: cases of one encoding alone, which stand in its own file.
"""

import numpy as np

from peref.config import Config
from peref.encodings import claims_of, functions_of, get, options, settings
from peref.golden.spec.cases import LEVELS_OF_HOOK, Variant, nested, sized
from peref.member import turning
from peref.settings import other_choices
from recipes.declared import Law, Refusal

LONG = (0, 1, 2047, 2048, 4096, 131071, 1048575)
BEYOND = (65535, 65536, 131077)  # the last of a table of 16 bits, and what such a one goes on with
UNORDERED = (5, 0, 3, 3, 11, 2, 15)
SPREAD = (0, 2, 3, 3, 5, 11, 15)
REAL = (0.0, 0.5, 1.25, 3.0, 3.0, 14.5, 7.0)
PACKED = ((0, 0, 1, 1, 1, 2, 2), (1, 1, 1, 2, 2, 2, 0))
SMALL = {"B": 1, "H": 3, "G": 1}
SMALLER = SMALL | {"T": 5}
PARTIAL = ("rope.partial.exponent_head_dim", "rope.partial.pairing", "rope.partial.passthrough")
FAR_FLAGS = ("rope.phase.low_precision", "rope.table.clip", "rope.table.wrap")
HEADS_2 = {name: {"dtype": "F64", "shape": [1, 2, 5, 8]} for name in "kv"}


def case(name, level, slug, why, *flags, **given):
    """A case with the sizes that suit the hook."""
    return sized(name, level, slug, why, flags, **given)


def usual(name, *, small=None, once=None, flags=None, beside=None, without=(), **sizes):
    """The default of every level, and every choice of every option at the level nearest to the formula.

    `small` are options that keep the parameters of the latter few, `once` the names that options had when
    their ids were given; `sizes` are for operations and attention with their arrays. `flags` has other flags
    for some options, or option-value, than that it is ignored: sizes of parameters and how they start are in
    the parameters. `beside` has what else a case needs for its option to show; options in `without` change no
    number at that level and have no case there.
    """
    e = get(name)
    levels = LEVELS_OF_HOOK[e.hook]
    for level in levels:
        why = "Every option at its default: if this fails, the set-up is wrong."
        yield case(name, level, "default", why, "basic", **({} if level == "table" else sizes))
    few = {"H": 3, "G": 1} if e.hook in ("score", "attend") else {}
    for option, (default, kind) in options(e).items():
        if option in without:
            continue
        for value in other_choices(default, kind):
            slug = f"{(once or {}).get(option, option)}-{value}".lower().replace("_", "-")
            why = f"The option {option} is {value}, by default it is {default}."
            more = dict((beside or {}).get(option, {}))
            chosen = {**(small or {}), **more.pop("options", {}), option: value}
            meant = {option: ("option",)} | (flags or {})
            yield case(
                name, levels[0], slug, why, *meant.get(slug, meant[option]), **few | more, options=chosen
            )


def basic(*options):
    """Flags of options that only size or start the parameters, or that change no number."""
    return dict.fromkeys(options, ("basic",))


def rotation(name):
    """Layouts, widths and places of what turns."""
    e = get(name)
    yield case(
        name,
        "op",
        "interleaved",
        "Pairs are adjacent channels (2i, 2i+1).",
        "rope.layout.half",
        **SMALL,
        layout="interleaved",
    )
    why = (
        "Only the first 4 of 8 channels turn: frequencies and pairs come from that width, the others pass "
        "untouched and ungained."
    )
    yield case(name, "op", "partial", why, *PARTIAL, **SMALL, R=4)
    yield case(
        name,
        "op",
        "partial-interleaved",
        why,
        *PARTIAL,
        "rope.layout.half",
        **SMALL,
        R=4,
        layout="interleaved",
    )
    why = "Positions repeat and go back: they are data and not a count."
    yield case(name, "op", "unordered", why, "position.counted", **SMALL, positions=UNORDERED)
    why = "Each sequence has positions of its own."
    yield case(name, "op", "rows", why, "position.batch", H=2, G=1, positions=(UNORDERED, UNORDERED[::-1]))
    if "any_length" in claims_of(e):
        why = "Positions far out: tables end, wrap round and lose digits there."
        for level in ("table", "op"):
            yield case(name, level, "long", why, *FAR_FLAGS, **SMALL, positions=LONG)
        why = "A table of 65,536 rows ends there, begins anew or goes on: each gives other numbers."
        few = SMALL | {"T": len(BEYOND), "D": 4}
        yield case(name, "table", "beyond-65536", why, *FAR_FLAGS[1:], **few, positions=BEYOND)
    if "real_positions" in claims_of(e):
        yield case(name, "table", "real", "Positions are real numbers.", "position.rounded", positions=REAL)
    if e.axes not in (1, None):
        line = [tuple((k * t) % (3 + k) for t in range(7)) for k in range(1, e.axes + 1)]
        image = tuple((row, row[::-1]) for row in line)
        yield case(
            name,
            "op",
            "axes",
            "A position is several numbers, one for each axis.",
            "position.axes",
            H=2,
            G=1,
            positions=image,
        )


def distances(name, given=None, reach=300, heads="bias.heads", far_flags=("bias.off_by_one",), sides=()):
    """Numbers of heads, and distances up to where every table ends; `given` are options that keep the
    parameters few.

    heads, far_flags and sides are the flags of the cases: of the numbers of heads, of far distances, of both
    sides.
    """
    claims = claims_of(get(name))
    options = {"options": given or {}}
    for H in (12, 7):
        yield case(name, "table", f"heads-{H}", f"{H} heads: no power of two.", heads, **options, H=H, G=1)
    far = {"T": reach, "L": reach, "H": 2, "G": 1} | options
    yield case(name, "table", "far", f"Every distance from 0 to {reach - 1}.", *far_flags, **far)
    if "two_sided" in claims:
        half = reach // 2
        why = (
            f"Distances {1 - half} to {half - 1}: the future is not the past mirrored, unless the formula "
            "says so."
        )
        yield case(name, "table", "two-sided", why, "bias.sign", **far | {"T": half}, causal=False)
        why = "Distances of both signs: the future is not the past mirrored, unless the formula says so."
        yield case(name, "op", "two-sided", why, "bias.sign", *sides, **options, causal=False)
    if "real_positions" in claims:
        yield case(
            name,
            "table",
            "real",
            "Distances are real numbers.",
            "position.rounded",
            **options,
            positions=REAL,
        )
    why = "Positions repeat and leave gaps: distances are of positions, the mask is of slots."
    yield case(name, "op", "spread", why, "position.counted", **options, positions=SPREAD)


def rows(name, odd="embed.rows"):
    """What is added to the embedding; `odd` is the flag of an odd width."""
    yield case(
        name, "table", "unordered", "Positions repeat and go back.", "position.counted", positions=UNORDERED
    )
    yield case(name, "table", "odd", "An odd width.", odd, C=9)
    if "any_length" in claims_of(get(name)):
        yield case(
            name,
            "table",
            "long",
            "Positions far out.",
            "rope.phase.low_precision",
            "rope.table.clip",
            positions=LONG,
        )


def attention(name, given=None, spread="position.counted"):
    """Masks and groups of heads, at the level that is nearest to a layer; `spread` is what fails with
    others.
    """
    e = get(name)
    level = LEVELS_OF_HOOK[e.hook][-1]
    options = {"options": given or {}}
    why = (
        "Two packed documents and padding: nothing crosses, positions restart, a row that sees nothing is 0."
    )
    yield case(
        name,
        level,
        "packed",
        why,
        *(() if e.hook == "mix" else ("mask.padding",)),
        "mask.documents",
        seg=PACKED,
        **options,
        **({} if e.hook == "mix" else {"H": 3, "G": 1, "D": 4}),
    )
    if e.hook in ("score", "attend", "mix") and e.axes is not None:
        why = "Positions repeat and leave gaps: they are data and not a count."
        yield case(
            name,
            level,
            "spread",
            why,
            spread,
            **options,
            **({} if e.hook == "mix" else SMALL),
            positions=SPREAD,
        )
    if e.hook == "mix":
        return
    yield case(
        name,
        level,
        "heads-alone",
        "Every query head has a key-value head of its own.",
        "gqa.order",
        **SMALLER | {"G": 3},
        **options,
    )
    if "window" in claims_of(e) and e.hook != "attend":
        yield case(
            name,
            level,
            "window-3",
            "A query sees 3 keys, itself included.",
            "mask.window",
            **SMALLER,
            **options,
            window=3,
        )
    if "two_sided" in claims_of(e):
        yield case(
            name,
            level,
            "two-sided",
            "Every query sees every key.",
            "mask.causal",
            **SMALLER,
            **options,
            causal=False,
        )


def states(name, given=None, flags=()):
    """The last state of a recurrence and the gradient that arrives through it, from nothing and from a state
    that is handed in; `flags` are more of the former.
    """
    options = {"options": given or {}}
    why = "From nothing to the last state, through which a gradient arrives as well."
    yield case(name, "op", "last-state", why, "state.gradient", *flags, T=5, before=0, **options)
    why = "Three tokens stood before: their state is handed in and has a gradient."
    caught = ("state.gradient", "state.first", "cache.state_dropped")
    sizes = {"T": 5, "positions": tuple(range(3, 8))}
    yield case(name, "op", "handed-state", why, *caught, before=3, **sizes, **options)


BACK = ((-2, 3, 3, 9, 1), (4, -1, 7, 0, 0))
IMAGE = (BACK, ((1, 1, 2, 5, -3), (0, 6, 1, 2, 2)), ((2, 0, 4, 4, 1), (3, 3, -1, 8, 5)))
HALVES = ((-2.5, 3.25, 3.0, 9.0, 1.5), (4.0, -1.25, 7.0, 0.0, 0.5))
CUT = ((1, 1, 1, 2, 2), (0, 3, 3, 3, 3))
LOOSE = (9.0, 4.25, -2.5, 3.0)
PADDED = ((0, 1, 1, 1),)


def has_rows(name):
    """Whether it ends at the length trained for, with the last row of a table."""
    return Config(pe=((name, {}),)).ends("float64")[0] == Config.L


def away(name, level):
    """Facts away from their defaults, as many at once as there can be: for causal attention, and, two-sided
    where that is claimed, for packed documents whose positions do not restart; once more for these, a few
    numbers of a longer text with groups of heads.
    """
    e = get(name)
    alone = level == "op" and e.hook in ("rotate", "bias")  # which know no documents
    ends = has_rows(name)
    among = lambda i: nested(np.abs(i).tolist() if ends else np.asarray(i).tolist())
    whole = IMAGE[: e.axes] if e.axes not in (1, None) else among(BACK)
    real = HALVES if "real_positions" in claims_of(e) else among(BACK)
    # a bias is of one sequence
    places = [i[0] if alone and e.hook == "bias" else i for i in (whole, real)]
    sizes = {"B": 1 if alone and e.hook == "bias" else 2, "T": 5}
    turned = {"R": 4, "layout": "interleaved"} if turning(name) else {}
    seen = {"window": 3} if "window" in claims_of(e) and e.hook != "embed" else {}
    yield "", sizes | turned | seen | {"n": 37, "positions": places[0]}
    if e.hook != "embed":
        facts = sizes | turned | {"n": 21, "positions": places[1]}
        facts |= {"causal": False} if "two_sided" in claims_of(e) else {}
        yield ("-real", facts) if alone else ("-packed", facts | {"seg": CUT})
    if e.hook not in ("embed", "mix") and not (alone and e.hook == "bias"):
        real = LOOSE if "real_positions" in claims_of(e) else among(np.rint(LOOSE).astype(int))
        places = tuple((axis[0][:4],) for axis in whole) if e.axes not in (1, None) else (tuple(real),)
        few = {"B": 1, "T": 4, "n": 37, "positions": places, "D": 6 if turned else 4}
        few |= {"H": 1, "G": 1} if alone else {"seg": PADDED, "H": 4, "G": 2} | {name: 2 for name in seen}
        yield "-groups", facts | few


def together(name, *settings, flag=None, first=1, packed=False, again=(), more=(), **sizes):
    """Every option and every fact away from its default at once, at each level above the table: what is
    ignored, or read as what lies near, shows beside all others.

    Packed documents are there with every setting where a bias or a score depends on who is seen, with the
    first alone elsewhere, unless `packed` asks for all. The cases are numbered from `first` on. The last of
    the places has settings that are there alone, `more`, and the one with groups of heads has those that
    `again` names for the level: by default the first, or none where q and k are turned alone.
    """
    e = get(name)
    sizes = ({} if e.hook in ("mix", "embed") else {"H": 2, "G": 1}) | sizes
    why = "Options and facts are away from their defaults together: what is ignored shows beside the others."
    scored = e.hook in ("bias", "score", "attend")
    flag = flag or ("position.counted" if scored and e.axes is not None else "option")
    there = set()
    for level in (level for level in LEVELS_OF_HOOK[e.hook] if level != "table"):
        places = dict(away(name, level))
        for number, given in enumerate((*settings, *more), first):
            for place, facts in places.items():
                few = {}
                wanted = not place or packed or scored or number == first
                if number - first >= len(settings):
                    wanted = place == list(places)[-1]
                if place == "-groups":
                    few = {n: facts[n] for n in ("B", "H", "G", "positions")}
                    usual = () if (e.hook, level) == ("rotate", "op") else (first,)
                    wanted = number in dict(again).get(level, usual)
                if wanted:
                    there.add(number)
                    slug = f"together-{number}{place}"
                    yield case(name, level, slug, why, flag, **facts | sizes | few, options=given)
    for number, given in enumerate((*settings, *more), first):
        if number not in there:
            what = f"together-{number} ({given}) is in no case; name {number} in `again`, for the level"
            raise ValueError(f"tests/recipes/{name}.py: {what}")


def reading(name, words, *, facts=None, rewrite=None, **options):
    """One of the variants of a case; the first is the norm."""
    return Variant(name, words, options, facts or {}, rewrite)


# ---------------------------------------------------------------- calls that must be refused


def refused(name, level, slug, kind, why, *, options=None, facts=None, given=None, or_else=None, **sizes):
    """A good call of `name` at `level` with these options, facts or inputs in place of its own."""
    # H D: the width where no input says it
    small = {"T": 5} if get(name).hook == "mix" else SMALLER | {"C": 24}
    return Refusal(
        case(name, level, "good", why, **small | sizes),
        slug,
        kind,
        why,
        options or {},
        facts or {},
        given or {},
        or_else,
    )


def positions(*values):
    """An input: these positions, of which some may be "nan" or "inf"."""
    return {
        "positions": {
            "dtype": "I64" if all(isinstance(x, int) for x in values) else "F64",
            "values": list(values),
        }
    }


def refusals(name):
    """What an encoding refuses by what it claims."""
    e = get(name)
    level = {"rotate": "op", "bias": "op", "embed": "table"}.get(e.hook, LEVELS_OF_HOOK[e.hook][-1])
    if e.hook == "rotate":
        yield refused(
            name,
            "op",
            "odd-width",
            "width",
            "An odd rotary width: the last channel has no partner.",
            facts={"R": 5},
        )
        yield refused(
            name,
            "op",
            "too-wide",
            "width",
            "A rotary width beyond the head: there are no such channels.",
            facts={"R": 12},
        )
    if "two_sided" not in claims_of(e):
        yield refused(
            name,
            LEVELS_OF_HOOK[e.hook][-1],
            "two-sided",
            "mask",
            "It reads only the past: there is no two-sided form.",
            facts={"causal": False},
        )
    if e.axes == 1:
        if "real_positions" in claims_of(e):
            yield refused(
                name,
                level,
                "nan-position",
                "position",
                "A position is NaN.",
                given=positions(0.0, 1.0, "nan", 3.0, 4.0),
            )
        else:
            why = "Positions are real, and they name rows of a table."
            yield refused(
                name, level, "real-position", "position", why, given=positions(0.0, 1.0, 1.5, 3.0, 4.0)
            )


# ---------------------------------------------------------------- laws


def law(name, level, which, why, *, slug=None, **given):
    """One law of `name`, at the level that it is about."""
    small = {} if get(name).hook == "mix" else SMALL
    return Law(which, case(name, level, slug or which, why, **small | given), slug or which)


def laws(name):
    """Those that it claims, and those of its hook."""
    e = get(name)
    if e.hook == "embed":
        return
    level = LEVELS_OF_HOOK[e.hook][-1]
    yield law(name, level, "causal", "What comes later changes nothing that came before.")
    yield law(
        name,
        level,
        "prefix",
        "The first tokens alone give what they give among more: so a cache may hold them.",
    )
    yield law(name, level, "packed", "A document in a packed sequence is computed as if alone.")
    if "shift" in claims_of(e) and e.axes is not None:
        yield law(
            name, level, "shift", "Only distances count: a number added to every position changes nothing."
        )
    if e.hook == "rotate":
        yield law(name, "op", "adjoint", "The gradient turns back.")
        usual = law(name, "op", "norm", "A rotation changes no length.")
        pe = usual.case.config.encoding(0)
        _, gain, _ = pe.rotate(pe.init(np.random.default_rng(0)), np.arange(3), 16)
        if gain is None:
            yield usual
            if e.axes == 1 or "text" in claims_of(e):
                yield law(name, "op", "composition", "Turned by m and then by n is turned by m + n.")
    if e.hook != "mix" and not any("G" in settings(f) for f in functions_of(e).values()):
        why = (
            "A key-value head serves the query heads next to one another: repeated for each of them it "
            "changes nothing."
        )
        yield law(name, level, "groups", why, H=6, G=2)

"""Options at the ends of what they may be, generated over all encodings: each is computed to finite
logits, or refused in words.
"""

from itertools import combinations, product
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from check import apart

from peref import model
from peref.config import Config
from peref.encodings import claims_of, get, names, options, resolve
from peref.errors import Misuse

H, D, L, T = 4, 8, 16, 21
TOKENS = np.random.default_rng(3).integers(0, 11, (1, T))


def shape(name, given):
    return Config(pe=((name, given),), L=L, V=11, C=16, layers=2, H=H, D=D, F=8)


def logits(name, given):
    cfg = shape(name, given)
    p = {key: a.astype(np.float32) for key, a in model.init(cfg, 1).items()}
    return model.logits(cfg, p, TOKENS if "any_length" in claims_of(get(name)) else TOKENS[:, :L])


def real(name):
    """Options that are real numbers or lists of them -> the length of the list, 0 for a number."""
    found = {}
    for option, (default, kind) in options(get(name)).items():
        kinds = [kind, *get_args(kind)]
        if any(get_origin(k) is tuple and float in get_args(k) for k in kinds):
            found[option] = D // 2 if default is None else len(default)
        elif float in kinds:
            found[option] = 0
    return found


def of(name, option, x):
    """The value x as the option wants it."""
    n = real(name)[option]
    return (x,) * n if n else x


def choices(name):
    """Each word that one of its options may be, the others at their defaults."""
    return [
        {},
        *(
            {option: word}
            for option, (_, kind) in options(get(name)).items()
            if get_origin(kind) is Literal
            for word in get_args(kind)
        ),
    ]


EVERY = [(name, option) for name in names() for option in real(name)]


def finite_or_refused(name, given):
    try:
        y = logits(name, given)
    except Misuse:
        return
    assert np.isfinite(y).all(), given


@pytest.mark.parametrize(("name", "option"), EVERY)
@pytest.mark.parametrize("x", [1e-320, 1e-31, 1e31, 1e308])
def test_what_cannot_be_computed_with_is_refused(name, option, x):
    """In words that name the option, and either sign."""
    for number in (x, -x):
        with pytest.raises(Misuse, match=f"option {option} of {name} is {number}".replace("+", r"\+")):
            shape(name, {option: of(name, option, number)})


@pytest.mark.parametrize(("name", "option"), EVERY)
def test_the_ends_of_what_is_taken(name, option):
    """Beside every choice of the other options; a warning of NumPy is an error here."""
    for other, x in product(choices(name), (1e-30, 1e-6, 0.0, -1.0, 1e6, 1e30)):
        if option not in other:
            finite_or_refused(name, {**other, option: of(name, option, x)})


@pytest.mark.parametrize("name", sorted({name for name, _ in EVERY}))
def test_two_at_their_ends(name):
    for one, two in combinations(real(name), 2):
        for x, y in product((1e-30, 1e30), repeat=2):
            finite_or_refused(name, {one: of(name, one, x), two: of(name, two, y)})


def test_a_whole_number_too_large_for_a_real_one():
    for number in (10**31, 10**400):
        with pytest.raises(Misuse, match=r"option base is|option base of rope is"):
            shape("rope", {"base": number})
    with pytest.raises(Misuse, match="option original of pi is"):
        shape("pi", {"original": 10**400})


LENGTHS = (16, 512)  # of training: shorter and longer than the text
SAME = {  # option -> why logits do not change with it alone
    "axial.max_freq": "of ladder=pixel",
    "mamba.chunk": "tokens worked on at once; that results agree to the bit is chance elsewhere",
    "pi.original": "the length from which form=dynamic stretches; a loop over scalings gives it to all",
    "pyramid.base": "of position=centre",
    "rwkv7.unit_eps": "1e-24 beside a sum of squares",
    "yarn.mscale": "read beside mscale_all_dim, or with reading=deepseek",
}


def others(name, option):
    """Values that an option may have besides its default."""
    default, kind = options(get(name))[option]
    kinds = [kind, *get_args(kind)]
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if word != default]
    if isinstance(default, bool):
        return [not default]
    if any(get_origin(k) is tuple for k in kinds):
        return (
            [tuple(f * x for x in default) for f in (3, 0.3)]
            if default
            else [(4, 2, 2) if tuple[int, ...] in kinds else tuple(np.linspace(2, 3, 8).tolist())]
        )
    x = default or 1.5
    return [int(2 * x), int(x / 2) or 1] if int in kinds else [2 * x, x / 2]


def of_text(name, given):
    """Logits for both lengths of training in float64, every parameter off its first value; of several
    axes, with a number on each too.
    """
    found = []
    for L in LENGTHS:
        cfg = Config(pe=((name, given),), L=L, V=11, C=16, layers=2, H=H, D=16, F=8)
        p = {
            k: a + 0.3 * np.random.default_rng([*k.encode()]).standard_normal(a.shape)
            for k, a in model.init(cfg, 1, "float64").items()
        }
        T, axes = 70 if "any_length" in claims_of(get(name)) else L, get(name).axes or 1
        several = [np.array([np.arange(T) * (a + 1) % 17 for a in range(axes)])[:, None]] if axes > 1 else []
        found += [
            model.logits(cfg, p, np.random.default_rng(3).integers(0, 11, (1, T)), positions=i)
            for i in (None, *several)
        ]
    return found


def changes(name, option, x, plain):
    """Whether the logits are others than `plain`, or the option is refused."""
    try:
        return any(map(apart, of_text(name, {option: x}), plain))
    except Misuse as refused:
        return option in str(refused)


@pytest.mark.parametrize("name", [name for name in names() if options(get(name))])
def test_every_option_alone_changes_the_logits_or_is_refused(name):
    """Or stands in SAME with its reason."""
    plain, idle = of_text(name, {}), set()
    for option in options(get(name)):
        for x in others(name, option):
            if changes(name, option, x, plain):
                break
        else:
            idle.add(f"{name}.{option}")
    known = {one for one in SAME if one.partition(".")[0] == name}
    assert idle <= known, (
        f"{idle - known} change no logits; take the options out, or say in SAME why they do not"
    )
    assert known <= idle, f"{known - idle} change logits by now; take them off SAME"


@pytest.mark.parametrize(
    ("name", "given", "beside"),
    [
        ("alibi", {"across_layers": "shared"}, {"slopes": "sides"}),
        ("dynamic_ntk", {"factor": 2.0, "form": "steps"}, {"form": "static"}),
        ("yarn", {"reading": "deepseek"}, {"mscale": 0.5}),
        ("yarn", {"reading": "deepseek", "mscale": 0.5, "attention_factor": 1.5}, {"attention_factor": None}),
    ],
)
def test_what_would_be_ignored_is_refused(name, given, beside):
    """And with what it needs beside it, it is not."""
    option = next(iter(given))
    with pytest.raises(Misuse, match=f"^{name}: {option} is {given[option]}, but "):
        of_text(name, given)
    of_text(name, given | beside)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int8, np.int64, np.uint32])
def test_numbers_of_numpy(kind):
    """Become Python's, alone and in a list; True and a whole array do not."""
    for name, option in EVERY:
        given = of(name, option, kind(2))
        found = resolve(name, {option: given})
        assert found == resolve(name, {option: of(name, option, 2.0)})
        assert type(np.atleast_1d(found[option]).tolist()[0]) is float
        for wrong in (np.True_, np.ones(2)):
            with pytest.raises(Misuse, match=f"option {option} is .*; expected"):
                resolve(name, {option: of(name, option, wrong)})
    assert shape("retnet", {"chunk": np.int64(3)}).pe[0][1]["chunk"] == 3
    with pytest.raises(Misuse, match=r"option chunk is 3\.0; expected int"):
        shape("retnet", {"chunk": np.float64(3)})


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("far", [2**53, 1e16, 1e300, -(2**63)])
def test_a_position_too_far(name, far):
    """2^53 is computed where the encoding reaches so far; beyond it whole numbers are no longer told
    apart, and nothing is.
    """
    cfg = shape(name, {})
    p = {key: a.astype(np.float32) for key, a in model.init(cfg, 1).items()}
    i = np.array([0, 1, far], type(far))
    if abs(far) <= 2**53 and "any_length" in claims_of(get(name)):
        assert np.isfinite(model.logits(cfg, p, TOKENS[:, :3], positions=i)).all()
    elif abs(far) > 2**53:
        with pytest.raises(Misuse, match=r"at most 2\^53 in size"):
            model.logits(cfg, p, TOKENS[:, :3], positions=i)

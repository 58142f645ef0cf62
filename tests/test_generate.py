"""Generation: through the cache it is the model itself; what is drawn follows temperature, top_k and seed,
and nothing else.
"""

import numpy as np
import pytest
from check import frozen, same
from recipes.families import has_rows

from peref.config import Config
from peref.encodings import names
from peref.errors import Diverged, Misuse
from peref.generate import generate, pick
from peref.model import init, logits
from peref.rng import generator

PROMPT = [100, 101, 102, 32]


def model(pe="alibi", L=32, **given):
    """A Config and read-only float64 weights, large enough for logits that differ."""
    cfg = Config(pe=((pe, {}),), L=L, C=16, layers=2, H=4, **given)
    return cfg, frozen({name: 2 * a for name, a in init(cfg, 3, "float64").items()})


def text(cfg, p, count=12, prompt=PROMPT, **given):
    return list(generate(cfg, p, prompt, count, **given))


def greedy(cfg, p, count, n):
    """The largest logit of the whole forward, again and again."""
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(int(logits(cfg, p, np.array([tokens]), n=n)[0, -1].argmax()))
    return tokens[len(PROMPT) :]


@pytest.mark.parametrize("name", names())
def test_greedy_is_the_argmax_of_the_whole_forward(name):
    """At temperature 0 each token is the largest logit of a forward without a cache, up to the length
    trained for.
    """
    cfg, p = model(name, L=16)
    got, want = text(cfg, p, temperature=0), greedy(cfg, p, 12, 16)
    assert got == want, f"{name} through the cache is not {name} at once; test_encodings.py decodes in pieces"
    assert len(set(got)) > 1, f"the weights of {name} always give one token; a test of {name} needs others"


@pytest.mark.parametrize("name", [name for name in names() if not has_rows(name)])
def test_past_the_length_trained_for(name):
    """An encoding of any length goes on past L, with frequencies made for the whole text from the start."""
    cfg, p = model(name, L=5)
    assert text(cfg, p, temperature=0) == greedy(cfg, p, 12, 16)


@pytest.mark.parametrize("name", ["learned", "learned_bias"])
def test_a_table_generates_to_its_end_and_no_further(name):
    """Prompt and text of L tokens are fine; one more is Misuse, says how many there can be, and comes
    before the first token.
    """
    cfg, p = model(name, L=10)
    assert len(text(cfg, p, 6)) == 6
    with pytest.raises(
        Misuse, match=f"^{name} ends at length 10; prompt and text would be 11 tokens; ask for at most 6"
    ):
        next(generate(cfg, p, PROMPT, 7))


# one token


Z = np.array([1.0, 0.0, 2.0, -1.0, 1.5])
FAR = 3 * np.sqrt(0.25 / 2000)  # three standard deviations, at the most, of how often a token is drawn


def drawn(temperature, top_k, z=Z, count=2000):
    """How often each token is picked, with one generator for each draw."""
    found = [pick(z, temperature, top_k, generator(0, "test", k)) for k in range(count)]
    return np.bincount(found, minlength=len(z)) / count


def softmax(z):
    e = np.exp(z - np.max(z))
    return e / e.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_temperature_divides_the_logits(temperature):
    """Tokens come as often as softmax(logits / temperature) says."""
    expected = softmax(Z / temperature)
    same(drawn(temperature, None), expected, FAR / expected.max())


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_keeps_the_largest(top_k):
    """Only the k largest are drawn, as often as the softmax over them alone says."""
    best = np.argsort(-Z)[:top_k]
    expected = np.zeros(5)
    expected[best] = softmax(Z[best] / 2)
    got = drawn(2.0, top_k)
    assert (got[expected == 0] == 0).all()
    same(got, expected, FAR / expected.max())


@pytest.mark.parametrize("top_k", [5, 6, 1000])
def test_top_k_of_all_is_no_top_k(top_k):
    """A k of the vocabulary or more changes no draw."""
    same(drawn(1.0, top_k, count=200), drawn(1.0, None, count=200), 0)


def test_temperature_zero_is_the_largest():
    """At 0 nothing is drawn: the largest logit, the first of equal ones, whatever top_k."""
    assert pick(Z, 0, None, None) == 2
    assert pick(Z.astype(np.float32), 0.0, 2, None) == 2
    assert pick(np.array([0.0, 3.0, 3.0]), 0, None, None) == 1


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 5e-324])
def test_a_tiny_temperature_is_nearly_zero(temperature):
    """However small, it picks the largest logit and overflows nothing; with large logits too."""
    assert drawn(temperature, None, count=20).tolist() == [0, 0, 1, 0, 0]
    assert drawn(temperature, 3, z=1e6 * Z, count=20).tolist() == [0, 0, 1, 0, 0]


def test_a_high_temperature_is_a_fair_die():
    """At 1e300 every token is as likely as any other."""
    assert np.abs(drawn(1e300, None) - 0.2).max() < FAR


def test_a_number_added_to_all_logits_changes_nothing():
    """Only differences of logits matter, also where e^logit is no number."""
    same(drawn(1.0, 3, z=Z + 4096, count=200), drawn(1.0, 3, count=200), 0)


# the text


def test_the_text_is_a_function_of_its_arguments():
    """The same arguments give the same text; another seed, temperature, top_k or prompt gives another."""
    cfg, p = model()
    one = text(cfg, p, seed=5)
    list(generate(cfg, p, PROMPT, 3, seed=9))
    np.random.default_rng().random()
    assert text(cfg, p, seed=5) == one
    assert (
        text(cfg, p, prompt=tuple(PROMPT), seed=5)
        == one
        == text(cfg, p, prompt=np.array(PROMPT, np.uint8), seed=5)
    )
    assert len(one) == 12
    assert all(type(token) is int and 0 <= token < 256 for token in one)
    others = [text(cfg, p, seed=6), text(cfg, p, seed=5, temperature=3.0), text(cfg, p, seed=5, top_k=2)]
    assert one not in [*others, text(cfg, p, prompt=[1, 2], seed=5)]


def test_every_token_has_its_own_random_stream():
    """Token k depends on the seed, k and what stands before it: a shorter text is the beginning of a
    longer one, and so is one cut off.
    """
    cfg, p = model()
    whole = text(cfg, p, seed=5)
    assert text(cfg, p, 5, seed=5) == whole[:5]
    going = generate(cfg, p, PROMPT, 12, seed=5)
    assert [next(going) for _ in range(4)] == whole[:4]


def test_tokens_are_drawn_from_the_model():
    """Each token is `pick` of the logits of a forward without a cache, with the stream of its seed and
    place.
    """
    cfg, p = model("rope")
    tokens = list(PROMPT)
    for step in range(8):
        row = logits(cfg, p, np.array([tokens]), n=32)[0, -1]
        tokens.append(pick(row, 0.7, 20, generator(3, "generate", step)))
    assert text(cfg, p, 8, temperature=0.7, top_k=20, seed=3) == tokens[4:]


def test_no_text_is_asked_for():
    """count=0 yields nothing, and needs no weights."""
    cfg, p = model()
    assert text(cfg, p, 0) == text(cfg, {}, 0) == []
    assert text(cfg, p, 1, prompt=[65]) == text(cfg, p, 2, prompt=[65])[:1]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [[1, 2]]}, "prompt"),
        ({"prompt": [256]}, "tokens go from 256 to 256; expected 0 to 255"),
        ({"prompt": [-1]}, "tokens go from -1"),
        ({"count": -1}, "^the number of tokens is -1; expected 0 or more$"),
        ({"temperature": -0.1}, "^temperature is -0.1; expected 0 or a positive number$"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_k": 0}, "^top_k is 0; expected at least 1, or none for all$"),
        ({"top_k": -2}, "top_k is -2"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given, word):
    """Misuse says which value was given, before the first token."""
    with pytest.raises(Misuse, match=word):
        next(generate(*model(), **{"prompt": PROMPT, "count": 3} | given))


def test_a_model_that_reads_both_ways_does_not_generate():
    """Without a causal mask earlier logits would change with every token."""
    with pytest.raises(Misuse, match="only a causal model generates"):
        next(generate(*model(causal=False), PROMPT, 3))


def test_weights_that_give_no_finite_numbers_generate_nothing():
    """Not a token of them, and no internal error."""
    cfg, p = model()
    with np.errstate(all="ignore"), pytest.raises(Diverged, match=r"logits of token 1 are not finite"):
        text(cfg, p | {"norm.weight": np.full(16, 1e308), "embed.weight": 100 * p["embed.weight"]})

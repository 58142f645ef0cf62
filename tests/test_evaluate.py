"""Evaluation: each token is scored once, the number is the model's whatever the windows, and what does not
fit is refused.
"""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from check import frozen, same, same_numbers

from peref import backends, model, runs, store
from peref import evaluate as evaluate_module
from peref.backends import Backend
from peref.config import Config
from peref.encodings import get, names, rotates
from peref.errors import Damaged, Diverged, Misuse
from peref.evaluate import Protocol, Scoring, by_buckets, evaluate, lengths, score, stored, under, weights_of
from peref.model import check, init, logits, loss
from peref.settings import choose

TEXT = np.random.default_rng(0).integers(97, 105, 200).astype(np.uint8)
PLAIN, SLIDING = Protocol(), Protocol(stride=3)
# size of the text, length of a window
SIZES = [(1, 1), (1, 5), (2, 1), (7, 7), (7, 8), (8, 7), (20, 5), (23, 5), (24, 5), (37, 11), (100, 64)]


def tiny(pe="alibi", L=8, **options):
    return Config(pe=((pe, options),), L=L, C=16, layers=2, H=2)


def untrained(cfg, dtype="float64", times=3.0):
    """Weights that make every token cost something else."""
    return frozen({name: times * a for name, a in init(cfg, 0, dtype).items()})


# windows


@pytest.mark.parametrize(("size", "length"), SIZES)
def test_every_token_is_scored_once(size, length):
    """For every stride the scored parts of the windows are the text in order, without gap or overlap, each
    at the end of its window.
    """
    for stride in (None, *range(1, length + 1)):
        cuts = list(Protocol(stride).windows(size, length))
        assert [t for _, stop, first in cuts for t in range(first, stop)] == list(range(size))
        for start, stop, first in cuts:
            assert 0 <= start <= first < stop <= size
            assert start % (stride or length) == 0
            assert stop - start == length or (stop == size and stop - start < length)


@pytest.mark.parametrize("stride", [1, 3, 7])
def test_a_sliding_window_keeps_its_context(stride):
    """But for the first window, every scored token has at least length - stride tokens of its window
    before it.
    """
    cuts = list(Protocol(stride).windows(40, 7))
    assert len(cuts) > 1
    for start, _, first in cuts[1:]:
        assert first - start >= 7 - stride


def test_windows_side_by_side():
    """Windows of 5 over 12 tokens: two whole ones and the rest. Stride 3: each begins 3 later and scores
    what is new.
    """
    assert list(PLAIN.windows(12, 5)) == [(0, 5, 0), (5, 10, 5), (10, 12, 10)]
    assert list(SLIDING.windows(12, 5)) == [(0, 5, 0), (3, 8, 5), (6, 11, 8), (9, 12, 11)]
    assert (str(PLAIN), str(SLIDING)) == ("non-overlapping", "sliding, stride 3")


@pytest.mark.parametrize("stride", [0, -1, 6])
def test_a_stride_that_skips_tokens_or_stands_still_is_refused(stride):
    """A stride is 1 to the length."""
    with pytest.raises(Misuse, match=f"stride is {stride}; expected 1 to the length 5"):
        list(Protocol(stride).windows(12, 5))


# score


def brute(cfg, p, text, length, stride):
    """Per token: its position in the window that scores it, its loss. One window at a time; later windows
    score only what is new.
    """
    size, found = len(text) - 1, []
    for start in range(0, size, stride):
        if len(found) == size:
            break
        window = text[start : start + length + 1].astype(int)
        _, each = loss(cfg, p, window[None, :-1], window[None, 1:])
        found += [(t - start, each[0, t - start]) for t in range(len(found), start + len(window) - 1)]
    return found


@pytest.mark.parametrize("stride", [None, 1, 3, 10])
@pytest.mark.parametrize("size", [9, 10, 30, 47])
def test_score_is_a_loop_over_windows(size, stride):
    """Loss, perplexity, bits, token count and the sums by position are those of a loop that runs the model
    on one window at a time.
    """
    cfg = tiny()
    p, text = untrained(cfg), TEXT[: size + 1]
    row, total, count = score(cfg, p, text, 10, Scoring(Protocol(stride)))
    found = brute(cfg, p, text, 10, stride or 10)
    mean = math.fsum(nll for _, nll in found) / size
    assert len(found) == size
    for name, want in {"loss": mean, "ppl": math.exp(mean), "bpb": mean / math.log(2)}.items():
        same_numbers(row[name], want, 1e-12)
    assert (row["length"], row["tokens"]) == (10, size)
    assert row["windows"] == len(list(Protocol(stride).windows(size, 10)))
    for place in range(10):
        here = [nll for at, nll in found if at == place]
        assert count[place] == len(here)
        same_numbers(total[place], math.fsum(here), 1e-12)


@pytest.mark.parametrize("protocol", [PLAIN, SLIDING], ids=str)
def test_how_windows_are_grouped_does_not_matter(protocol, monkeypatch):
    """One window at a time, some, or all at once: the same loss, error and sums by position to 1e-12."""
    cfg = tiny("forgetting")
    p, rows = untrained(cfg), []
    for at_once in (1, 20, 35, 10**6):
        monkeypatch.setattr(evaluate_module, "TOKENS_AT_ONCE", at_once)
        rows.append(score(cfg, p, TEXT[:98], 10, Scoring(protocol)))
    for row, total, count in rows[1:]:
        same_numbers(row, rows[0][0], 1e-12)
        same([total, count], rows[0][1:], 1e-12)


def test_a_stride_of_the_length_is_side_by_side():
    """Sliding by a whole window is the non-overlapping protocol, bit by bit."""
    cfg = tiny()
    (row, *sums), (other, *others) = (
        score(cfg, untrained(cfg), TEXT, 16, Scoring(Protocol(s))) for s in (None, 16)
    )
    assert row == other
    same(sums, others, 0)


def test_a_shorter_stride_is_a_longer_context():
    """The protocol is part of the number: the same tokens with more context before them have another loss."""
    cfg = tiny()
    one, two = (score(cfg, untrained(cfg), TEXT, 16, Scoring(Protocol(s)))[0] for s in (None, 4))
    assert one["tokens"] == two["tokens"] == 199
    assert one["loss"] != two["loss"]


def test_progress_counts_tokens():
    """What `progress` is told adds up to the tokens of the text."""
    told = []
    score(tiny(), untrained(tiny()), TEXT, 10, Scoring(SLIDING, progress=told.append))
    assert sum(told) == 199
    assert min(told) > 0


def window_means(cfg, p, text, length, protocol):
    """Mean loss of the tokens that each window scores, and how many they are."""
    means = []
    for start, stop, first in protocol.windows(len(text) - 1, length):
        window = text[start : stop + 1].astype(int)[None]
        means.append(
            (loss(cfg, p, window[:, :-1], window[:, 1:])[1][0, first - start :].mean(), stop - first)
        )
    return np.array(means).T


def test_the_standard_error_of_equal_windows():
    """It is s / sqrt(n) of the windows' means, with n - 1 below s, in bits."""
    cfg = tiny()
    row, *_ = score(cfg, untrained(cfg), TEXT[:121], 10)
    means, _ = window_means(cfg, untrained(cfg), TEXT[:121], 10, PLAIN)
    assert row["windows"] == len(means) == 12
    same_numbers(row["stderr"], means.std(ddof=1) / math.sqrt(12) / math.log(2), 1e-12)


@pytest.mark.parametrize("protocol", [PLAIN, SLIDING], ids=str)
def test_the_standard_error_of_unequal_windows(protocol):
    """A window counts by the part of the tokens that it scores; one window alone has no error."""
    cfg = tiny()
    p = untrained(cfg)
    row, *_ = score(cfg, p, TEXT[:38], 10, Scoring(protocol))
    means, tokens = window_means(cfg, p, TEXT[:38], 10, protocol)
    assert len(set(tokens)) > 1
    n, mean = len(means), (means * tokens).sum() / 37
    square = n / (n - 1) * sum((w / 37) ** 2 * (x - mean) ** 2 for x, w in zip(means, tokens, strict=True))
    same_numbers(row["stderr"], math.sqrt(square) / math.log(2), 1e-12)
    assert score(cfg, p, TEXT[:11], 10, Scoring(Protocol()))[0]["stderr"] is None


def test_a_huge_loss_has_a_perplexity():
    """Perplexity stops at e^700 where e^loss is no longer a number."""
    cfg = tiny()
    row, *_ = score(cfg, untrained(cfg) | {"norm.weight": np.full(16, 1e4)}, TEXT, 16)
    assert row["loss"] > 700
    assert row["ppl"] == math.exp(700)


# by position


def test_buckets_double():
    """Positions 0, 1, 2-3, 4-6 of a length of 7; mean loss and tokens of each; together they are the
    total.
    """
    total, count = np.arange(1.0, 8), np.array([4, 4, 4, 4, 2, 2, 1.0])
    rows = by_buckets(total, count)
    assert [(r["from"], r["to"]) for r in rows] == [(0, 0), (1, 1), (2, 3), (4, 6)]
    assert [r["tokens"] for r in rows] == [4, 4, 8, 5]
    same_numbers([r["loss"] for r in rows], [1 / 4, 2 / 4, 7 / 8, 18 / 5], 1e-15)
    same_numbers([r["bpb"] for r in rows], [r["loss"] / math.log(2) for r in rows], 1e-15)


@pytest.mark.parametrize(
    ("length", "last"), [(1, (0, 0)), (2, (1, 1)), (3, (2, 2)), (8, (4, 7)), (9, (8, 8)), (512, (256, 511))]
)
def test_buckets_end_at_the_length(length, last):
    """The buckets are the positions in order, without gap or overlap."""
    rows = by_buckets(np.ones(length), np.ones(length))
    assert [at for r in rows for at in range(r["from"], r["to"] + 1)] == list(range(length))
    assert (rows[-1]["from"], rows[-1]["to"]) == last


def test_buckets_without_tokens_are_left_out():
    """Positions that no window reached have no row."""
    assert [r["to"] for r in by_buckets(np.array([1.0, 1, 0, 0, 0]), np.array([1.0, 1, 0, 0, 0]))] == [0, 1]


@pytest.mark.parametrize("protocol", [PLAIN, SLIDING], ids=str)
def test_buckets_sum_to_the_row(protocol):
    """Tokens and loss of the buckets of the longest length are those of its row."""
    *_, row = evaluate(tiny(), untrained(tiny()), TEXT, 24, Scoring(protocol))
    assert sum(b["tokens"] for b in row["by_position"]) == row["tokens"] == 199
    same_numbers(sum(b["tokens"] * b["loss"] for b in row["by_position"]), row["loss"] * 199, 1e-12)


# lengths


@pytest.mark.parametrize(
    ("trained", "longest", "expected"),
    [
        (512, 2048, [256, 512, 1024, 2048]),
        (512, 2000, [256, 512, 1024, 2000]),
        (512, 100, [100]),
        (512, 256, [256]),
        (512, 400, [256, 400]),
        (512, 512, [256, 512]),
        (1, 1, [1]),
        (1, 5, [1, 2, 4, 5]),
        (7, 30, [3, 7, 14, 28, 30]),
    ],
)
def test_lengths(trained, longest, expected):
    """Half the training length, that length itself and its doublings, up to `longest`, which is always the
    last.
    """
    assert lengths(trained, longest) == expected


# evaluate


def test_one_row_per_length_on_the_same_text():
    """From half the training length to the one asked for; every row has all tokens; only the last has
    positions; each is its own score.
    """
    cfg = tiny()
    p = untrained(cfg)
    rows = list(evaluate(cfg, p, TEXT, 32))
    assert [r["length"] for r in rows] == [4, 8, 16, 32]
    assert {r["tokens"] for r in rows} == {199}
    assert ["by_position" in r for r in rows] == [False, False, False, True]
    for r in rows:
        expected, *_ = score(cfg, p, TEXT, r["length"])
        assert {k: v for k, v in r.items() if k != "by_position"} == expected


@pytest.mark.parametrize("longest", [0, -3])
def test_a_length_below_one_is_refused(longest):
    """There is nothing to evaluate at length 0."""
    with pytest.raises(Misuse, match=f"length is {longest}"):
        next(evaluate(tiny(), untrained(tiny()), TEXT, longest))


def test_a_text_shorter_than_the_length_is_refused():
    """A window needs one byte more than its length; the message has both numbers, and comes before any
    work.
    """
    with pytest.raises(Misuse, match="has 200 bytes, too few for length 200; expected at least 201"):
        next(evaluate(tiny(), untrained(tiny()), TEXT, 200))
    *_, row = evaluate(tiny(), untrained(tiny()), TEXT, 199)
    assert row["windows"] == 1


@pytest.mark.parametrize("name", ["learned", "learned_bias"])
def test_a_table_past_its_end_is_refused(name):
    """Up to the length of its table an encoding is evaluated; for more Misuse says where it ends, before
    any work.
    """
    cfg = tiny(name)
    with pytest.raises(Misuse, match=f"^{name} ends at length 8, and length is 16; ask for at most 8"):
        next(evaluate(cfg, untrained(cfg), TEXT, 16))
    with pytest.raises(Misuse, match=f"^{name}: .* the table has .*0 to 7 and ends there"):
        score(cfg, untrained(cfg), TEXT, 9)
    cfg = tiny(name, L=16)
    assert [r["length"] for r in evaluate(cfg, untrained(cfg), TEXT, 16)] == [8, 16]


# other encodings for the same weights


def test_nothing_asked_is_the_config_itself():
    """Without --pe and --set it is the run's own."""
    cfg = tiny("rope", base=500.0)
    assert under(cfg, None, ()) is cfg


def losses(cfg, p):
    return [row["loss"] for row in evaluate(cfg, p, TEXT, 16)]


def test_rope_weights_under_another_base():
    """Another base is another model of the same weights: another loss; the run's own base is the same
    loss.
    """
    cfg = tiny("rope")
    p = untrained(cfg)
    other = under(cfg, None, ("base=100",))
    assert other.pe[0][1]["base"] == 100.0
    assert losses(other, p) != losses(cfg, p)
    assert losses(under(cfg, "rope", ("base=10000",)), p) == losses(cfg, p)
    assert losses(under(cfg, "rope", ()), p) == losses(cfg, p)


@pytest.mark.parametrize("name", [n for n in names() if rotates(get(n)) and not get(n).rotate])
def test_what_turns_q_and_k_by_itself_reads_weights_of_rope(name):
    """In the layout and width that they were trained with: near keys are as RoPE has them, far ones are
    not.
    """
    cfg = Config(pe=(("rope", {}),), L=64, C=16, layers=2, H=2, R=4, layout="interleaved")
    p, other, x = untrained(cfg), under(cfg, name, ()), np.random.default_rng(0).integers(0, 256, (1, 80))
    assert (other.R, other.layout) == (4, "interleaved")
    same(logits(other, p, x[:, :8]), logits(cfg, p, x[:, :8]), 1e-12)
    assert abs(logits(other, p, x) - logits(cfg, p, x)).max() > 1e-3
    assert abs(logits(under(cfg, name, ("layout=half",)), p, x) - logits(other, p, x)).max() > 1e-3


def test_alibi_weights_under_none():
    """ALiBi has no parameters, so without it the weights still fit; the loss is another."""
    cfg = tiny("alibi")
    p, other = untrained(cfg), under(cfg, "none", ())
    assert losses(other, p) != losses(cfg, p)
    assert losses(other, p) == losses(tiny("none"), p)


def test_alibi_weights_under_t5_are_refused():
    """T5 needs a table that these weights have not: Misuse names it and its shape."""
    other = under(tiny("alibi"), "t5", ())
    with pytest.raises(Misuse, match=r"no pe\.0\.table \[32, 2\], which t5 at this shape needs"):
        next(evaluate(other, untrained(tiny("alibi")), TEXT, 16))


def test_t5_weights_under_alibi_are_refused():
    """Parameters that the other encoding has no use for are refused, not ignored; so is a table of another
    shape.
    """
    cfg = tiny("t5")
    with pytest.raises(Misuse, match=r"have pe\.0\.table, which alibi has no use for"):
        next(evaluate(under(cfg, "alibi", ()), untrained(cfg), TEXT, 16))
    with pytest.raises(Misuse, match=r"pe\.0\.table is \[32, 2\] in the weights, expected \[16, 2\]"):
        next(evaluate(under(cfg, None, ("buckets=16",)), untrained(cfg), TEXT, 16))


def test_an_option_alone_keeps_the_others():
    """--set changes that option and no other, whether --pe names the encoding again or not."""
    cfg = tiny("sinusoidal", layout="concatenated", base=50.0)
    for pe in (None, "sinusoidal"):
        assert dict(under(cfg, pe, ("ladder=endpoint",)).pe[0][1]) == {
            "layout": "concatenated",
            "ladder": "endpoint",
            "base": 50.0,
            "learned": False,
        }


def test_another_encoding_has_the_options_of_the_run_that_it_knows():
    """RoPE's base is YaRN's, also where they stand beside another; a value of another kind is not taken, nor
    one that the run had by default.
    """
    cfg, of = tiny("rope", base=500.0, learned=True), lambda *how: dict(under(*how).pe[0][1])
    assert of(cfg, "yarn", ()) == of(tiny("rope"), "yarn", ("base=500",))
    assert of(cfg, "yarn", ("base=7",))["base"] == 7.0
    assert of(tiny("p_rope"), "pi", ())["factor"] == of(tiny("rope"), "pi", ())["factor"] != 1.0
    both = Config(**choose("rope+alibi", ["base=500", "max_bias=4"]))
    found = of(both, "yarn+alibi", ())
    assert (found["yarn.base"], found["alibi.max_bias"], of(both, "ntk", ())["base"]) == (500.0, 4.0, 500.0)
    assert of(tiny("sinusoidal", ladder="endpoint"), "retnet", ())["ladder"] == "endpoint"
    assert of(tiny("sinusoidal", layout="concatenated"), "retnet", ())["layout"] == "interleaved"


def test_an_option_of_one_member_of_a_cycle():
    """--set INDEX.NAME changes that member alone; the rest of the model stays."""
    cfg = Config(
        pe=(("rope", {"base": 5.0}), ("alibi", {}), ("rope", {})),
        L=8,
        C=16,
        layers=3,
        H=2,
        R=4,
        layout="interleaved",
        norm="layer",
    )
    other = under(cfg, None, ("2.base=7",))
    assert [options.get("base", options.get("max_bias")) for _, options in other.pe] == [5.0, 8.0, 7.0]
    assert (other.R, other.layout, other.norm, other.L) == (4, "interleaved", "layer", 8)
    check(other, init(cfg))


def test_what_belongs_to_rotations_and_attention_goes_with_them():
    """Rotary width and layout stay while something turns, can be set, and are dropped with the rotation;
    so are key-value heads.
    """
    cfg = Config(pe=(("rope", {}),), L=8, C=16, layers=2, H=2, R=4, layout="interleaved")
    assert (under(cfg, None, ("base=7",)).R, under(cfg, None, ("base=7",)).layout) == (4, "interleaved")
    assert under(cfg, None, ("rotary_dim=8", "layout=half")) == Config(
        pe=(("rope", {}),), L=8, C=16, layers=2, H=2, R=8
    )
    assert under(cfg, "alibi", ()).R is None
    assert (under(cfg, "alibi", ()).layout, under(tiny("alibi"), "rope", ()).R) == ("half", 8)
    assert under(cfg, "retnet", ()).G is None
    assert under(tiny("retnet"), "alibi", ()).G == 1


@pytest.mark.parametrize(
    ("pe", "given", "word"),
    [
        ("alibbi", (), "did you mean 'alibi'"),
        (None, ("base=3",), "no option 'base'"),
        (None, ("max_bias",), "expected NAME=VALUE"),
        (None, ("max_bias=many",), "max_bias is 'many'"),
        ("alibi,rope", ("2.base=3",), "members 0 to 1"),
    ],
)
def test_an_unknown_encoding_or_option_is_refused(pe, given, word):
    """The message says what there is."""
    with pytest.raises(Misuse, match=word):
        under(tiny("alibi"), pe, given)


# the weights of a run


def record_of(cfg):
    """What run.json says of a run of nine steps."""
    text = {"name": "a", "spec": "a.txt", "sha256": "ab"}
    return {"config": cfg.to_json(), "steps": 9, "argv": [], "data": text, "environment": {}, "recipe": {}}


@pytest.fixture
def run(tmp_path):
    """A run folder with the checkpoints 3 and 5, the moments beside the weights."""
    cfg = tiny()
    found = runs.create(tmp_path, ["x"], record_of(cfg))
    for step in (3, 5):
        arrays = {f"{kind}/{name}": a + np.float32(step) for kind in "pmv" for name, a in init(cfg).items()}
        found.save(step, arrays, {})
    return found


def test_the_weights_of_a_run(run):
    """Config, weights and step of the newest checkpoint, without the moments."""
    cfg, p, step = weights_of(run)
    assert (cfg, step) == (tiny(), 5)
    assert set(p) == set(init(cfg))
    same(p, {name: a + np.float32(5) for name, a in init(cfg).items()}, 0)


def test_a_damaged_checkpoint_is_not_evaluated(run):
    """A flipped bit in the newest is Damaged, with its path; an older one is not taken silently."""
    path = run.folder / "ckpt" / "00000005.safetensors"
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=r"00000005\.safetensors"):
        weights_of(run)


def test_a_checkpoint_that_is_removed_meanwhile_is_looked_for_again(run, monkeypatch):
    """Whoever trains prunes; the newest there is now is taken."""
    inner, arrays = runs.Run.checkpoint, run.checkpoint(5)[0]

    def pruned(self, step):
        if step == 5:
            self.save(7, arrays, {}, keep=1)
        return inner(self, step)

    monkeypatch.setattr(runs.Run, "checkpoint", pruned)
    assert weights_of(run)[2] == 7


def test_arrays_of_another_kind_are_refused(run):
    """Of another dtype than the run's, or under names that no checkpoint has."""
    arrays, _ = run.checkpoint(5)
    name = next(iter(arrays))
    for change in ({name: arrays[name].astype("float64")}, {"x": arrays[name]}):
        run.save(5, arrays | change, {})
        with pytest.raises(Misuse, match=r"in float(32|64); expected p/, m/ and v/ in float32"):
            weights_of(run)


def test_weights_that_give_no_finite_numbers_are_not_evaluated():
    """Each is finite, and yet the loss is not."""
    p = init(tiny(), 0, "float32")
    p |= {"norm.weight": np.full(16, np.float32(3e38)), "embed.weight": 100 * p["embed.weight"]}
    with np.errstate(all="ignore"), pytest.raises(Diverged, match=r"the loss is nan: these weights give no"):
        list(evaluate(tiny(), p, TEXT, 8))


def test_a_checkpoint_of_another_run_is_not_evaluated(run, tmp_path):
    """It may hold the same shapes, and yet it is not what run.json says."""
    other = runs.create(tmp_path, ["y"], record_of(tiny("none")))
    shutil.copy(run.folder / "ckpt" / "00000005.safetensors", other.folder / "ckpt")
    with pytest.raises(Damaged, match="belongs to another run"):
        weights_of(other)


def test_a_run_without_checkpoint_is_refused(tmp_path):
    """Before the first checkpoint there is nothing to evaluate; the message says how to get one."""
    run = runs.create(tmp_path, ["x"], record_of(tiny()))
    with pytest.raises(Misuse, match=r"has no checkpoint yet; .*--resume"):
        weights_of(run)


# what is kept


def test_stored_has_the_numbers_and_what_they_depend_on():
    """It is JSON; it has protocol, digest and size of the text, step, encoding, every row with its ratio
    to the training length, positions.
    """
    cfg = tiny("rope", base=50.0)
    rows = list(evaluate(cfg, untrained(cfg, "float32"), TEXT, 16, Scoring(SLIDING)))
    found = stored(Scoring(SLIDING), "ab" * 32, TEXT, 7, cfg, rows)
    store.canonical(found)
    assert found["protocol"] == {"name": "sliding, stride 3", "stride": 3}
    assert (found["corpus"], found["bytes"], found["step"], found["pe"]) == (
        "ab" * 32,
        199,
        7,
        cfg.to_json()["pe"],
    )
    assert [r["length"] for r in found["rows"]] == [4, 8, 16]
    assert [r["ratio"] for r in found["rows"]] == [r["bpb"] / rows[1]["bpb"] for r in rows]
    assert found["rows"][1]["ratio"] == 1
    assert found["by_position"] == rows[-1]["by_position"]
    assert (found["trained_on"], found["L"], found["backend"]) == ("ab" * 32, 8, "numpy")
    assert found["config"] == cfg.to_json()
    other = stored(Scoring(SLIDING, Backend(name="other")), "ab" * 32, TEXT, 7, cfg, rows)
    assert (other["corpus"], other["backend"]) == ("ab" * 32, "other")
    for r, given in zip(found["rows"], rows, strict=True):
        assert set(r) == {"length", "loss", "ppl", "bpb", "stderr", "windows", "tokens", "ratio"}
        assert all(r[k] == given[k] for k in set(r) - {"ratio"})


def test_below_the_training_length_there_is_no_ratio():
    """A table that does not reach the training length has no ratio to it; no rows are no table."""
    cfg = tiny(L=32)
    found = stored(Scoring(PLAIN), "", TEXT, 7, cfg, list(evaluate(cfg, untrained(cfg), TEXT, 9)))
    assert found["protocol"] == {"name": "non-overlapping", "stride": None}
    assert [(r["length"], r["ratio"]) for r in found["rows"]] == [(9, None)]
    assert stored(Scoring(PLAIN), "", TEXT, 7, cfg, [])["rows"] == []


# memory

HEADS = {
    "tied": {},
    "untied": {"tied": False},
    "biases": {"tied": False, "norm": "layer", "biases": True, "head_bias": True},
    "capped": {"logit_softcap": 3.0, "logit_factor": 0.5},
    "both ways": {"causal": False},
}


@pytest.mark.parametrize("T", [1, 2, 13])
@pytest.mark.parametrize("head", HEADS)
def test_losses_in_blocks_of_rows_are_those_of_all_logits(monkeypatch, head, T):
    """To 1e-12 in float64, and to 1e-6 by the kernels, whose sums may go another way; no more logits than
    are allowed are ever made.
    """
    cfg = Config(pe=(("t5", {}),), L=13, C=16, layers=2, H=2, V=31, **HEADS[head])
    tokens, targets = np.random.default_rng(T).integers(0, 31, (2, 3, T))
    targets[0, 0] = -1
    for be, dtype, off in ((Backend(), "float64", 1e-12), (backends.get("numba"), "float32", 1e-6)):
        p = untrained(cfg, dtype)
        whole, made = loss(cfg, p, tokens, targets, be=be)[1], []
        seen = lambda x, t, be=be, made=made: made.append(x.size) or be.cross_entropy(x, t)
        counted = replace(be, cross_entropy=seen)
        for rows in (1, 2, 7, 38, 10**6):
            monkeypatch.setattr(model, "LOGITS_AT_ONCE", rows * 31 + 30)
            made.clear()
            same(model.losses(cfg, p, tokens, targets, be=counted), whole, off)
            assert max(made) <= rows * 31
            assert sum(made) == tokens.size * 31

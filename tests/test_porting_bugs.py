"""benchmarks/porting, small and without transformers: its engine is the reference's, and two of its planted
mistakes are found at their tensor and named; what is committed is what the page says.
"""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_files import cli
from safetensors.numpy import save_file

from peref import model
from peref.porting import config_of, unload

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 24, "head_dim": 8, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}


@pytest.fixture
def bench(monkeypatch, capsys):
    """The benchmark with small models of its own settings, its commands in this process."""
    here = ROOT / "benchmarks" / "porting"
    spec = importlib.util.spec_from_file_location("planted_in_ports", here / "__main__.py")
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("bugs", "engine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec.loader.exec_module(found)
    for name in ("bugs", "engine"):
        monkeypatch.delitem(sys.modules, name)

    def saved(kind, folder):
        public = SMALL | {"model_type": kind, "rms_norm_eps": 1e-6} | found.MODELS[kind]
        cfg, rng = config_of(public), np.random.default_rng(0)
        params = {n: 2 * a + 0.3 * rng.standard_normal(a.shape) for n, a in model.init(cfg, 1).items()}
        params = {name: a.astype(np.float32) for name, a in params.items()}
        folder.mkdir()
        save_file(unload(params, cfg), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(public))
        return model.logits(cfg, params, found.TOKENS[None])

    found.saved, found.peref = saved, lambda *words: cli(capsys, *words)
    return found


@pytest.mark.parametrize("kind", ["mistral", "qwen3"])
def test_a_planted_mistake_is_found_and_named(kind, bench, tmp_path):
    """The first of its family; the engine without it agrees."""
    (tmp_path / "tokens.txt").write_text(" ".join(map(str, bench.TOKENS)))
    out, ref, names, right, says = bench.reference(kind, tmp_path)
    assert bench.asked(out, right, tmp_path, says)[0] == 0
    bug = next(bug for bug in (*bench.NAMED, *bench.OTHERS) if bug.family == kind)
    theirs = bench.run(tmp_path / kind, bench.TOKENS, bug.name)
    assert bench.differing(ref, theirs, names) in bug.first
    code, first, rest, said = bench.asked(out, theirs, tmp_path, says)
    assert (code, first in bug.first) == (1, True), said
    assert re.search(bug.words, rest, re.IGNORECASE), said


def test_the_page_says_what_was_found(bench):
    found = json.loads((ROOT / "benchmarks" / "results" / "porting.json").read_text())
    page = (ROOT / "docs" / "porting.md").read_text()
    for row, bugs in (("named", bench.NAMED), ("others", bench.OTHERS)):
        assert [one["bug"] for one in found[row]] == [bug.name for bug in bugs]
        right, named = (sum(one[key] for one in found[row]) for key in ("right", "named"))
        assert re.search(rf"\| {right} of 10 \| {named} \|", page)

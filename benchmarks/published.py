"""A published model of 135 million parameters: import, and the loss of 8,192 tokens, beside PyTorch.

    pip install -e '.[numba]' torch transformers
    python benchmarks/published.py [FOLDER]     where the model is kept, 270 MB; without, it is made and gone

Random weights of the shape of Llama (30 layers, width 576, 9 heads of 3, vocabulary 49,152, tied), saved by
transformers in shards of bfloat16; a Llama in FOLDER/model is taken instead, with as many tokens as it was
trained for. Each line is a process of its own: seconds, seconds of CPU, and the peak of its memory, with all
that it loaded; the losses are means in nats. Ours is what `eval` computes, by the numba backend; theirs is
float32 with sdpa. Both have computed 64 tokens before the clock starts. Exit code 1 where the losses are
further apart than 1e-4, or our peak is more than half of theirs.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

THREADS = min(2, len(os.sched_getaffinity(0)))


def make(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
    sizes |= {"num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192}
    config = LlamaConfig(**sizes, rope_theta=100000.0, tie_word_embeddings=True)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "model", max_shard_size="100MB")


def tokens_for(folder: Path) -> np.ndarray:
    """As many as the model was trained for, and one, [1,T+1]."""
    config = json.loads((folder / "model" / "config.json").read_text())
    rng = np.random.default_rng(0)
    return rng.integers(0, config["vocab_size"], config["max_position_embeddings"] + 1)[None]


def imported(folder: Path) -> Any:
    from peref.imported import import_run

    return lambda: import_run(folder / "model", folder, [], name=f"run-{os.getpid()}")


def ours(folder: Path) -> Any:
    from peref import backends
    from peref.evaluate import losses, weights_of
    from peref.runs import open_run

    cfg, params, _ = weights_of(open_run(max(folder.glob("run-*"), key=lambda path: path.stat().st_mtime)))
    be, tokens = backends.get("numba"), tokens_for(folder)
    of = lambda x: float(losses(cfg, params, x[:, :-1], x[:, 1:], be=be).mean())
    of(tokens[:, :65])
    return lambda: of(tokens)


def theirs(folder: Path) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(THREADS)
    how = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    net = LlamaForCausalLM.from_pretrained(folder / "model", **how).eval()
    tokens = torch.from_numpy(tokens_for(folder))

    @torch.no_grad()
    def of(x: torch.Tensor) -> float:
        logits = net(x[:, :-1], use_cache=False).logits[0]
        return float(torch.nn.functional.cross_entropy(logits, x[0, 1:]))

    of(tokens[:, :65])
    return lambda: of(tokens)


PARTS = {"import": imported, "peref": ours, "torch": theirs}


def measured(part: str, folder: Path) -> dict[str, Any]:
    begun = PARTS[part](folder)
    wall, cpu = time.perf_counter(), time.process_time()
    found = begun()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    # not ru_maxrss, which begins with that of the process that started this one
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return {
        "s": wall,
        "cpu": cpu,
        "GB": int(peak[1]) * 1024 / 1e9,
        "loss": found if isinstance(found, float) else None,
    }


def apart(part: str, folder: Path) -> dict[str, Any]:
    env = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(THREADS))
    line = [sys.executable, __file__, str(folder), part]
    return json.loads(subprocess.run(line, env=env, check=True, capture_output=True, text=True).stdout)


def main(folder: Path) -> bool:
    if not (folder / "model").exists():
        make(folder)
    print(f"| on {THREADS} threads | seconds | of CPU | peak, GB | loss |\n|---|---|---|---|---|", flush=True)
    found = {}
    for part in PARTS:
        one = found[part] = apart(part, folder)
        loss = "" if one["loss"] is None else f"{one['loss']:.6f}"
        print(f"| {part} | {one['s']:.1f} | {one['cpu']:.1f} | {one['GB']:.2f} | {loss} |", flush=True)
    alike = abs(found["peref"]["loss"] - found["torch"]["loss"]) < 1e-4
    return alike and found["peref"]["GB"] <= found["torch"]["GB"] / 2


if __name__ == "__main__":
    if sys.argv[2:]:
        print(json.dumps(measured(sys.argv[2], Path(sys.argv[1]))))
    elif sys.argv[1:]:
        sys.exit(not main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as name:
            sys.exit(not main(Path(name)))

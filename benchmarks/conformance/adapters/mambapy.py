"""mamba.py: MambaBlock, with its parallel scan in the default case and its sequential one in the others."""

import torch
from mambapy.mamba import MambaBlock, MambaConfig
from through_torch import adapter, put

PACKAGES = ("mambapy", "torch")
DTYPES = ("f32",)


def compute(case, a):
    o, facts = case["options"], case["facts"]
    if case["encoding"] != "mamba" or o["discretisation"] != "euler" or "seg" in a:
        return None
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
    config = MambaConfig(
        d_model=facts["C"], n_layers=1, d_state=o["state_size"], expand_factor=o["expand"], d_conv=o["kernel"], pscan=case["id"].endswith("default")
    )
    config.dt_rank = p["down.weight"].shape[0]
    block = MambaBlock(config)
    put(block.in_proj, "weight", torch.cat([p["x.weight"], p["z.weight"]]))
    put(block.conv1d, "weight", p["conv"][:, None])
    put(block.conv1d, "bias", p["conv.bias"])
    put(block.x_proj, "weight", torch.cat([p["down.weight"], p["b.weight"], p["c.weight"]]))
    put(block.dt_proj, "weight", p["dt.weight"])
    put(block.dt_proj, "bias", p["dt.bias"])
    put(block, "A_log", p["A_log"])
    put(block, "D", p["D"])
    put(block.out_proj, "weight", p["o.weight"])
    return {"y": block(a["x"])}


run = adapter(compute)

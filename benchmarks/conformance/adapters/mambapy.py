"""mamba.py: MambaBlock, with its parallel scan in the default case and its sequential one in the others."""

from mambapy.mamba import MambaBlock, MambaConfig
from through_torch import adapter, put_mamba

PACKAGES = ("mambapy", "torch")
DTYPES = ("f32",)


def compute(case, a):
    o, facts = case["options"], case["facts"]
    if case["encoding"] != "mamba" or (o["discretisation"], o["norms"]) != ("euler", "none") or "seg" in a:
        return None
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
    config = MambaConfig(
        d_model=facts["C"],
        n_layers=1,
        d_state=o["state_size"],
        expand_factor=o["expand"],
        d_conv=o["kernel"],
        pscan=case["id"].endswith("default"),
    )
    config.dt_rank = p["down.weight"].shape[0]
    block = MambaBlock(config)
    put_mamba(block, p)
    return {"y": block(a["x"])}


run = adapter(compute)

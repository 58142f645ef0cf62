"""What each parameter is and on which axes, by its name on disk (parameters)."""

import re

LEGEND = {  # of axes, and what they count
    "B": "sequences",
    "T": "tokens",
    "S": "tokens that the encoder reads",
    "H": "query heads",
    "G": "key-value heads",
    "D": "channels of a head",
    "HD": "channels of all query heads, one head after another",
    "GD": "channels of all key-value heads, one head after another",
    "C": "channels of the model",
    "F": "channels inside the feed-forward",
    "E": "experts",
    "V": "tokens of the vocabulary",
}
WEIGHTS = {  # axes, and what it is
    "embed": ("V C", "the embedding"),
    "embed_norm": ("C", "the norm of the embedding"),
    "norm": ("C", "the last norm"),
    "head": ("V C", "the head"),
    "norm1": ("C", "the norm before attention"),
    "norm2": ("C", "the norm before the feed-forward"),
    "norm_cross": ("C", "the norm before attention to the encoder"),
    "after1": ("C", "the norm behind attention"),
    "after2": ("C", "the norm behind the feed-forward"),
    "after_cross": ("C", "the norm behind attention to the encoder"),
    "q": ("HD C", "the map to queries"),
    "k": ("GD C", "the map to keys"),
    "v": ("GD C", "the map to values"),
    "o": ("C HD", "the map from the heads"),
    "qnorm": ("D", "the norm of queries"),
    "knorm": ("D", "the norm of keys"),
    "sinks": ("H", "the sinks"),
    "temperature": ("H", "the factor of the temperature"),
    "cosine": ("H", "the logarithm of the factor of cosines"),
    "router": ("E C", "the router"),
    "gate": ("F C", "the gate of the feed-forward"),
    "up": ("F C", "the first map of the feed-forward"),
    "down": ("C F", "the last map of the feed-forward"),
    "receptance": ("C C", "the receptance of the feed-forward"),
    "mix.receptance": ("C", "the share of this token in what receptance reads"),
    "mix.up": ("C", "the share of this token in what the first map of the feed-forward reads"),
}
INSIDE = {"cross": "attention to the encoder", "experts": "each expert", "shared": "the shared expert"}
ON_DISK = re.compile(
    r"(?:(encoder|decoder)\.)?(?:(\d+)\.)?(?:(cross|experts|shared)\.)?(.+?)(?:\.(weight|bias))?"
)


def described_parameter(name: str, ndim: int, wide: bool = False) -> tuple[list[str], str]:
    """Its axes and what it is. `wide`: norms of q and k are over all heads (qk_norm_over)."""
    found = ON_DISK.fullmatch(name)
    assert found is not None  # some name is left, whatever is around it
    half, layer, inside, role, kind = found.groups()
    letters, says = WEIGHTS.get(role, ("", f"{role}, the encoding's own"))
    axes = letters.split() or [f"axis {n}" for n in range(ndim)]
    if wide and role in ("qnorm", "knorm"):
        axes = ["HD" if role == "qnorm" else "GD"]
    axes = [*(["E"] if inside == "experts" else []), *axes[: 1 if kind == "bias" and letters else None]]
    says = f"the bias of {says}" if kind == "bias" else says
    of = [INSIDE.get(inside), layer and f"layer {layer}", half and f"the {half}"]
    return axes, " of ".join([says, *filter(None, of)])

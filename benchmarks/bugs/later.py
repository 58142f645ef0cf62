"""Flags that did not exist when the accepted ones were fixed. Where the words of such a flag are the bug
itself, the nearest flag of then is what was accepted.

The table counts twice: with the accepted flags as they were fixed, and with these besides.
"""

LATER = {
    "cache.position_offset": (
        "rope-offset-doubled",
        "llama3-offset-doubled",
        "t5-offset-doubled",
        "fire-offset-doubled",
    ),
    "cache.ignored": ("none-chunk-alone", "rope-chunk-alone"),
    "cache.bias_dropped": (
        "t5-dropped-on-decode",
        "alibi-dropped-on-decode",
        "kerple_power-dropped-on-decode",
        "fire-dropped-on-decode",
        "sandwich-dropped-on-decode",
        "alibi-of-new-tokens",
    ),
    "cache.keys_turned_again": ("rope-turned-again", "llama3-turned-again"),
    "mask.chunk_open": ("none-chunk-not-causal", "mrope-chunk-not-causal"),
}


def also_right(name, flag):
    """Whether a flag that came later names this bug."""
    return name in LATER.get(flag, ())

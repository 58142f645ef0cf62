"""Multimodal rotary position embedding.

    pair n of R/2 turns by (t, h or w) base^(-2n/R)

Wang et al. 2024, arXiv:2409.12191, section 2.1. Positions i are [T] for text, whose t, h and w are one, or
[3][T]. Chunked: the list of axes is t as often as its section says, then h, then w. Interleaved: t h w t h w
..., until h and w have had as many pairs as their sections say, and t for what is left over. Alternate (ERNIE
4.5 VL): h w h w ... until both have had theirs, then t.
"""


def divided(pairs, parts):
    """Whole numbers nearest below, then one more for those that lost most; all in units of 1 / sum(parts)."""
    exact, unit = [pairs * part for part in parts], sum(parts)
    got = [x // unit for x in exact]
    while sum(got) < pairs:
        lost = [x - unit * y for x, y in zip(exact, got, strict=True)]
        got[lost.index(max(lost))] += 1
    return got


def rotate(p, i, n, R, base=10000.0, order="chunked", sections=None):
    half = R // 2
    left = list(
        sections
        or divided(half, {"chunked": [2, 3, 3], "interleaved": [6, 5, 5], "alternate": [10, 11, 11]}[order])
    )
    axes = "t" * left[0] + "h" * left[1] + "w" * left[2]
    if order == "interleaved":
        axes, left = "", dict(zip("thw", left, strict=True))
        for pair in range(half):
            axis = "thw"[pair % 3]
            axis = axis if left[axis] > 0 else "t"
            left[axis] -= 1
            axes += axis
    if order == "alternate":
        t, h, w = left
        axes = ("hw" * h)[: h + w]
        axes += "t" * t
    text = not isinstance(i[0], list)
    place = dict.fromkeys("thw", i) if text else dict(zip("thw", i, strict=True))
    return (
        [[place[axes[a]][m] * base ** (-2 * a / R) for a in range(half)] for m in range(len(place["t"]))],
        None,
        None,
    )

"""Every variant of every CUDA kernel compiles, within its registers and with nothing spilled to memory but
what is known: here for one of four architectures in turn, by `python tests/attest.py --all` each for all.
"""

import re

import pytest
from emulated.compilers import SM, compiler, figures, report, variants

from peref.backends.cuda.launch import FOLDER, VARIANTS, declared, source
from peref.backends.cuda.recurrences import KEPT, SHARE

# registers of a thread where so many blocks of 128 threads share a processor's 65,536
ROOM = {2: 255, 3: 168, 4: 128}
BLOCKS = {  # so many must fit on sm_80 and sm_90, of float32, bfloat16 and, where there is one, TF32
    ("attention", 32): (2, 2, 2),
    ("attention", 64): (2, 2, 2),
    ("attention", 128): (2, 2, 2),
    ("attention_backward", 32): (2, 2, 2),
    ("attention_backward", 64): (2, 2, 2),
    ("attention_backward", 128): (2, 2, 2),
    ("retention", 32): (2, 3, 4),
    ("retention", 64): (2, 3, 4),
    ("retention", 128): (2, 3, 3),
    ("wkv6", 32): (4, 4),
    ("wkv6", 64): (4, 4),
    ("wkv6", 128): (3, 3),
    ("wkv7", 32): (4, 4),
    ("wkv7", 64): (4, 4),
    ("wkv7", 128): (4, 4),
    ("diagonal", None): (3, 3),
}
# bytes stored and loaded, by file, WIDTH, type ("" is float32) with MORE, and architecture; nvcc 13.0
SPILLED = {
    ("attention", 64, "", 80): 112,
    ("attention", 64, "", 90): 40,
    ("attention", 64, "", 120): 8,
    ("attention", 64, "MORE", 80): 136,
    ("attention", 64, "MORE", 90): 148,
    ("attention", 64, "MORE", 100): 76,
    ("attention", 64, "MORE", 120): 56,
    ("attention", 64, "BF16", 80): 120,
    ("attention", 64, "BF16", 120): 64,
    ("attention", 64, "BF16 MORE", 90): 28,
    ("attention", 128, "", 80): 308,
    ("attention", 128, "", 90): 340,
    ("attention", 128, "", 100): 108,
    ("attention", 128, "", 120): 140,
    ("attention", 128, "MORE", 80): 156,
    ("attention", 128, "MORE", 90): 252,
    ("attention", 128, "MORE", 100): 92,
    ("attention", 128, "MORE", 120): 80,
    ("attention", 128, "BF16", 80): 40,
    ("attention", 128, "BF16", 100): 16,
    ("attention", 128, "BF16 MORE", 90): 120,
    ("attention_backward", 64, "BF16", 80): 112,
    ("attention_backward", 64, "BF16", 90): 100,
    ("attention_backward", 64, "BF16", 100): 140,
    ("attention_backward", 64, "BF16", 120): 140,
    ("attention_backward", 128, "", 100): 16,
    ("attention_backward", 128, "MORE", 80): 60,
    ("attention_backward", 128, "MORE", 100): 24,
    ("attention_backward", 128, "BF16 MORE", 100): 52,
    ("retention", 128, "", 90): 24,
    ("retention", 128, "", 100): 40,
    ("retention", 128, "", 120): 64,
    ("retention", 128, "BF16", 100): 120,
    ("retention", 128, "BF16", 120): 56,
}
STACK = {"turn": 40}  # cos of a double: CUDA's own function for angles beyond 2^30 wants it
MOST = 99 * 1024  # bytes of shared memory that every GPU from 8.0 on has for a block
# beside what is declared
ASKED = {
    "wkv6": KEPT + 3 * SHARE,
    "wkv7": KEPT + 5 * SHARE,
    "selective": KEPT + 2 * SHARE,
    "diagonal": 2 * KEPT,
}
ROWS = 64  # of the others: room for as many threads as memory wants
ALL = [(file, defines, sm) for file, defines, (sm,) in variants()]
TITLES = ["-".join([file, *(f"{k}{v}" for k, v in defines.items())]) for file, defines, _ in ALL]
NONE = (
    "neither nvcc nor NVRTC's wheel (pip install nvidia-cuda-nvrtc) is here: the CUDA kernels were compiled "
    "for no device"
)


def test_every_file_has_its_variants():
    """And every kernel in it a signature that launch understands."""
    assert {p.stem for p in FOLDER.glob("*.cu")} == set(VARIANTS)
    for file in VARIANTS:
        assert len(declared(file)) == len(re.findall(r"^KERNEL", source(file), re.MULTILINE))


def test_no_header_is_asked_for():
    """NVRTC finds none where only the wheel is."""
    for file in VARIANTS:
        assert "#include" not in source(file)


def test_no_sum_depends_on_who_comes_first():
    """No kernel adds to what another block adds to. A barrier's vote is no sum in memory."""
    for file in VARIANTS:
        assert not re.search(r"atomic|(?<!\bbarrier\.cta\.)\bred\.", re.sub(r"//.*", "", source(file)))


def test_every_architecture_has_its_turn():
    """With a quarter of the variants, some of each file that multiplies tiles."""
    for sm in SM:
        files = [file for file, _, turn in ALL if turn == sm]
        assert len(files) >= len(ALL) // len(SM)
        assert {"attention", "attention_backward", "retention", "wkv6", "wkv7"} <= set(files)


def budget(file, defines, sm):
    """How many registers a thread of a variant may have."""
    if file not in {name for name, _ in BLOCKS}:
        return ROOM[4] if file in ("norm", "loss") else ROWS  # they keep rows, and 512 threads must fit
    if sm > 90:
        return ROOM[2]
    return ROOM[BLOCKS[file, defines.get("WIDTH")][1 if "BF16" in defines else 2 if "TF32" in defines else 0]]


@pytest.mark.skipif(compiler() is None, reason=NONE)
@pytest.mark.parametrize(("file", "defines", "sm"), ALL, ids=TITLES)
def test_compiles(file, defines, sm):
    """With what ptxas says of registers and spills."""
    said = report(source(file), [f"-D{k}={v}" for k, v in defines.items()], (sm,))
    kind = " ".join(kind for kind in ("BF16", "TF32", "MORE") if kind in defines)
    known = SPILLED.get((file, defines.get("WIDTH"), kind, sm), 0)
    assert "warning" not in said, said
    used, spilled, stack = figures(said)
    assert len(used) == len(declared(file))
    allowed = budget(file, defines, sm)
    assert max(used) <= allowed, f"{max(used)} registers, {allowed} allowed"
    assert sum(spilled) <= known, said
    assert max(stack) <= (known or STACK.get(file, 0)), said
    assert ASKED.get(file, 0) + max(map(int, re.findall(r"(\d+) bytes smem", said)), default=0) <= MOST

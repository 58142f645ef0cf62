"""Launch: the one place that compiles kernels, and that checks each call against the kernel's own
declaration.

A kernel is named "file.kernel" and declared in kernels/file.cu by `KERNEL name(...)` or
`KERNEL_OF(blocks) name(...)`. A compiled variant is (file, defines); it is made when it is first called and
kept by CuPy on disk. Only CuPy's public names are used, on arrays that are given: nothing here imports it.
"""

import hashlib
import re
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from peref.errors import Misuse, counted
from peref.xp import library, maker, namespace

FOLDER = Path(__file__).with_name("kernels")
TYPES = {"float": "float32", "double": "float64", "int": "int32", "i64": "int64"}  # C's names -> NumPy's
SINGLE, BF16 = np.dtype("float32"), {"BF16": 1}
NULL = np.uintp(0)
FLOATS, WHOLE, MOST_WHOLE = {"float", "double"}, {int, bool}, 2**31 - 1  # up to which they fit any whole type
SHARED: dict[Any, int] = {}  # bytes of shared memory that a kernel was told of, by kernel and device
HOPPER = "__CUDA_ARCH_FEAT_SM90_ALL"  # what a kernel file that has use for wgmma asks for
OPTIN = 97  # CUDA's number of the attribute that says how many it can ask for
ELSE = "use narrower heads or --backend numpy"

# of each file, what it is compiled with: the type in memory; for products of tiles how wide they are, and
# whether float32 is cut to TF32 there
WIDTHS = (32, 64, 128)
REALS: tuple[dict[str, int], ...] = ({}, BF16)
TILES = tuple({"WIDTH": width, **kind} for width in WIDTHS for kind in (*REALS, {"TF32": 1}))
VARIANTS: dict[str, tuple[dict[str, int], ...]] = {
    **dict.fromkeys(
        ("activation", "by_index", "embedding", "loss", "norm", "optimizer", "reach", "turn"), REALS
    ),
    **dict.fromkeys(("convolution", "diagonal", "selective", "wkv4"), REALS),
    **dict.fromkeys(("wkv6", "wkv7"), tuple({"WIDTH": width, **kind} for width in WIDTHS for kind in REALS)),
    "retention": TILES,
    **dict.fromkeys(
        ("attention", "attention_backward"),
        tuple({**kind, **more} for kind in TILES for more in ({}, {"MORE": 1})),
    ),
}
EVERY = ("embedding", "norm", "turn", "activation", "loss", "optimizer")
UNDER_WAY: dict[Any, Future[None]] = {}  # by module of CuPy, file and defines


def source(file: str) -> str:
    """The text of a kernel file, what it includes put in place: no compiler has to look for anything."""
    text = (FOLDER / f"{file}.cu").read_text(encoding="utf-8")
    return re.sub(r'#include "(\w+\.cuh)"', lambda m: (FOLDER / m[1]).read_text(encoding="utf-8"), text)


def sources_digest() -> str:
    """16 hex digits of the SHA-256 of all kernel sources."""
    found = hashlib.sha256()
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in (".cu", ".cuh"):
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


@lru_cache
def declared(file: str) -> dict[str, list[tuple[str, bool, bool, str]]]:
    """Of each kernel in a file its parameters: C's type, whether a pointer, whether it may be null, the
    name.
    """
    found = {}
    for name, inside in re.findall(
        r"^KERNEL(?:_OF\(\w+\))? (\w+)\((.*?)\) \{", source(file), re.DOTALL | re.MULTILINE
    ):
        parts = [re.fullmatch(r"(?:const )?(\w+) (\*?)(MAYBE )?(\w+)", p.strip()) for p in inside.split(",")]
        found[name] = [(m[1], bool(m[2]), bool(m[3]), m[4]) for m in parts if m]
        assert len(found[name]) == len(parts), f"{file}.{name}: a parameter is not understood"
    return found


def module(xp: Any, file: str, defines: dict[str, int]) -> Any:
    """A variant. Its defines always come in one order: CuPy's folder of compiled kernels tells options in
    another order apart.
    """
    assert defines in VARIANTS[file], f"{file} {defines}: a variant that no test compiles"
    code, options = source(file), ["--std=c++17", *(f"-D{k}={v}" for k, v in sorted(defines.items()))]
    if HOPPER in code and has_wgmma(xp, xp.cuda.Device().id):
        options.append("-arch=sm_90a")
    return xp.RawModule(code=code, options=tuple(options))


@cache
def has_wgmma(xp: Any, device: int) -> bool:
    """Whether kernels can be compiled for Hopper's own instructions: from NVRTC 12.9 on it takes an
    architecture beside CuPy's, which knows of none with them.
    """
    return xp.cuda.Device(device).compute_capability == "90" and xp.cuda.nvrtc.getVersion() >= (12, 9)


def variant(defines: dict[str, int], bf16: bool) -> frozenset[tuple[str, int]]:
    return frozenset({**defines, **BF16}.items() if bf16 else defines.items())


@cache
def begin_compiling(xp: Any, file: str, defines: frozenset[tuple[str, int]]) -> None:
    """Begin to compile a variant, in a thread: CuPy lets others go on while NVRTC compiles, and NVRTC
    compiles for each by itself.
    """
    here = xp.cuda.Device().id

    def one() -> None:
        xp.cuda.Device(here).use()  # a thread has no context before
        module(xp, file, dict(defines)).compile()

    pool = ThreadPoolExecutor(1)
    UNDER_WAY[xp, file, defines] = pool.submit(one)
    pool.shutdown(wait=False)


def ahead(xp: Any, defines: dict[str, int]) -> None:
    """Begin to compile what every training step needs, whatever its widths."""
    for file in EVERY:
        begin_compiling(xp, file, variant(defines, False))


@cache
def compiled(xp: Any, file: str, name: str, defines: frozenset[tuple[str, int]]) -> Any:
    # one that failed there says here why
    wait([task for task in (UNDER_WAY.get((xp, file, defines)),) if task])
    return module(xp, file, dict(defines)).get_function(name)


@cache
def most_shared(xp: Any, device: int) -> int:
    """Bytes of shared memory that a block can ask for; what a kernel declares at a fixed size counts too."""
    return xp.cuda.runtime.deviceGetAttribute(OPTIN, device)


def argument(where: str, given: Any, kind: str, pointer: bool, maybe: bool) -> Any:
    """What is handed to the kernel for one parameter, or Misuse."""
    if not pointer:
        dtype = np.dtype(TYPES[kind])
        if dtype.kind == "i" and not (given == int(given) and abs(int(given)) <= np.iinfo(dtype).max):
            raise Misuse(f"{where} is {given}; the kernel takes {dtype}")
        return dtype.type(given)
    if given is None and maybe:
        return NULL
    if library(given) != "cupy":
        raise Misuse(
            f"{where} is {type(given).__module__}.{type(given).__name__}; the cuda backend takes arrays on "
            "the device, see Backend.place"
        )
    if given.dtype.name != kind:
        raise Misuse(f"{where} is {given.dtype.name}; the kernel takes {kind}")
    if not given.flags.c_contiguous:
        raise Misuse(
            f"{where} {list(given.shape)} is not C-contiguous, and kernels do not look at strides; make it "
            "so with ascontiguousarray"
        )
    if given.data.ptr % given.dtype.itemsize:
        raise Misuse(f"{where} does not lie at a multiple of its {given.dtype.itemsize} bytes; copy it")
    return given


@cache
def prepared(kernel: str, real: Any) -> tuple[Any, ...]:
    """Of each parameter its name, its type by NumPy's name, whether a pointer, whether it may be null, and
    that type; `real` is the type of arrays declared real*.
    """
    file, name = kernel.split(".")
    types = {**{c: np.dtype(kind) for c, kind in TYPES.items()}, "real": real}
    return tuple(
        (f"{kernel}: {n}", types[k].name if pointer else k, pointer, maybe, types.get(k))
        for k, pointer, maybe, n in declared(file)[name]
    )


@cache
def devices(xp: Any) -> int:
    return xp.cuda.runtime.getDeviceCount()


def make_room(kernel: str, function: Any, xp: Any, device: int, shared: int) -> None:
    """A block of the kernel may ask for so many bytes of shared memory. Raises Misuse where it cannot."""
    if shared > (most := most_shared(xp, device) - function.shared_size_bytes):
        raise Misuse(
            f"{kernel} takes {shared} bytes of shared memory for sizes like these, and a block has at "
            f"most {most} on this GPU; {ELSE}"
        )
    function.max_dynamic_shared_size_bytes = shared
    SHARED[function, device] = shared


def launch(
    kernel: str,
    grid: tuple[int, ...],
    block: int,
    *given: Any,
    real: Any = None,
    shared: int = 0,
    **defines: int,
) -> None:
    """Run "file.kernel" on CuPy's current stream. `real` is the dtype of arrays declared real*, `shared` the
    bytes of dynamic shared memory.

    Raises Misuse where an array or number is not as the kernel declares it. An empty grid is nothing to do.
    What is as declared is seen at once; argument() is asked about the rest.
    """
    bf16 = real is not None and real != SINGLE and real.name == "bfloat16"
    parameters = prepared(kernel, real if bf16 else SINGLE)
    if len(given) != len(parameters):
        raise Misuse(f"{kernel} takes {counted(len(parameters), 'argument')}, {len(given)} given")
    made: list[Any] = []
    first: Any = None
    for a, (where, kind, pointer, maybe, dtype) in zip(given, parameters, strict=True):
        if dtype is None:
            made.append(a)  # a struct, by value
        elif not pointer:
            seen = kind in FLOATS or (type(a) in WHOLE and -MOST_WHOLE <= a <= MOST_WHOLE)
            made.append(dtype.type(a) if seen else argument(where, a, kind, pointer, maybe))
        elif a is None and maybe:
            made.append(NULL)
        else:
            seen = maker(a.__class__) == "cupy" and a.dtype == dtype and a.flags.c_contiguous
            seen = seen and not a.data.ptr % dtype.itemsize
            made.append(a if seen else argument(where, a, kind, pointer, maybe))
            first = a if first is None else first
    xp = namespace(first)
    if devices(xp) > 1 and len(places := {a.device.id for a in made if maker(a.__class__) == "cupy"}) > 1:
        raise Misuse(f"{kernel}: its arrays are on devices {sorted(places)}; expected one")
    if 0 in grid:
        return
    file, _, name = kernel.partition(".")
    function = compiled(xp, file, name, variant(defines, bf16))
    if shared and shared > SHARED.get((function, here := xp.cuda.Device().id), 0):
        make_room(kernel, function, xp, here, shared)
    function(tuple(grid) + (1,) * (3 - len(grid)), (block, 1, 1), tuple(made), shared_mem=shared)

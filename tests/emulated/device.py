"""CuPy's RawModule on the CPU: the same kernel text, compiled by g++ behind shim.h and run on the arrays of
the fake CuPy.

Every array is copied between two guards of NaN before a kernel runs, and back afterwards: what is read beyond
an end is no number, what is written there is an error. The order of threads is drawn from the seed.
"""

import ctypes
import hashlib
import math
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import fake_cupy
import numpy as np

SHIM = Path(__file__).with_name("shim.h").read_text(encoding="utf-8")
FLAGS = (
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE",
    "-w",
)
GUARD = 4096
FAILED = {
    1: "a barrier that some threads never reach",
    2: "threads that wait for one another",
    3: "writing beyond the dynamic shared memory",
    4: "an address that is no multiple of 16",
    5: "two copies on their way to one place",
}


class Fault(Exception):
    """What would be undefined on a device."""


def folder_of_results():
    """Where what compilers make is kept, under the hash of all that makes it: a folder of this user's
    among the temporary ones.
    """
    folder = Path(tempfile.gettempdir()) / f"peref-emulated-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@cache
def built(code, options, level):
    """The shared library of a kernel text, optimised at a level of g++'s."""
    names = re.findall(r"^KERNEL(?:_OF\(\w+\))? (\w+)\(", code, re.MULTILINE)
    calls = "\n".join(f'extern "C" void call_{n}(void **a) {{ emulated::invoke({n}, a); }}' for n in names)
    text = f"{SHIM}\n{code}\n{calls}\n"
    hopper = ["-D__CUDA_ARCH_FEAT_SM90_ALL"] if "-arch=sm_90a" in options else []
    flags = (level, *FLAGS, *(o for o in options if o.startswith("-D")), *hopper)
    key = hashlib.sha256("\0".join((text, *flags)).encode()).hexdigest()
    folder = folder_of_results()
    library = folder / f"{key[:32]}.so"
    if not library.exists():
        part = folder / f"{key[:32]}.{os.getpid()}.so"
        done = subprocess.run(
            ["g++", *flags, "-x", "c++", "-", "-o", part],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"g++ does not compile it:\n{done.stderr[:4000]}")
        os.replace(part, library)
    return ctypes.CDLL(str(library))


class Function:
    """One kernel, called as CuPy's are: (grid, block, args, shared_mem=bytes)."""

    # stricter than CUDA: what fits beside 48 KiB is asked for too
    max_dynamic_shared_size_bytes, shared_size_bytes = 0, 0

    def __init__(self, device, library, name):
        self.device, self.library, self.name = device, library, name

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        if max(grid[1:], default=1) > 65535 or grid[0] >= 2**31 or math.prod(block) > 1024:
            raise Fault(f"{self.name}: no device has a grid of {grid} blocks of {block}")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise Fault(
                f"{self.name}: {shared_mem} bytes of shared memory, {self.max_dynamic_shared_size_bytes} "
                "asked for before"
            )
        call = ctypes.cast(getattr(self.library, f"call_{self.name}"), ctypes.c_void_p)
        sizes = [(ctypes.c_int * 3)(*s, *(1,) * (3 - len(s))) for s in (grid, block)]
        now = fake_cupy.Device.now
        held = [now.raw(a._host) if isinstance(a, fake_cupy.ndarray) else a.tobytes() for a in args]
        now.perform(
            lambda: self.run(call, held, sizes, shared_mem), [a for a in held if isinstance(a, np.ndarray)]
        )
        self.device.launched.append(self.name)

    def run(self, call, held, sizes, shared):
        """Once, on copies between guards; arrays of one address share theirs."""
        given, buffers = [], {}
        for a in held:
            if isinstance(a, np.ndarray):
                where = buffers.setdefault(a.ctypes.data, (a, guarded(a)))
                given.append(ctypes.c_void_p(where[1].ctypes.data + GUARD))
            else:
                given.append(ctypes.create_string_buffer(a))
        pointers = (ctypes.c_void_p * len(given))(*(ctypes.addressof(g) for g in given))
        failed = self.library.run(call, pointers, *sizes, shared, ctypes.c_ulonglong(self.device.seed))
        if failed:
            raise Fault(f"{self.name}: {FAILED[failed]}")
        for host, copy in buffers.values():
            if (copy[:GUARD] != 0xFF).any() or (copy[GUARD + host.nbytes :] != 0xFF).any():
                raise Fault(
                    f"{self.name}: it writes beyond the end of an array {host.dtype}{list(host.shape)}"
                )
            if host.nbytes and (host.reshape(-1).view(np.uint8) != copy[GUARD : GUARD + host.nbytes]).any():
                host.reshape(-1).view(np.uint8)[:] = copy[GUARD : GUARD + host.nbytes]


def guarded(host):
    """The bytes of an array between two guards; all bits set is a NaN, and -1."""
    line = np.full(host.nbytes + 2 * GUARD, 0xFF, np.uint8)
    if host.nbytes:
        line[GUARD : GUARD + host.nbytes] = host.reshape(-1).view(np.uint8)
    return line


def attach(cupy, seed=1, edit=None):
    """Gives the fake CuPy a RawModule. `edit` (old, new) changes the text of the kernels, to see a mistake
    caught; what was launched is noted.
    """
    device = SimpleNamespace(seed=seed, edit=edit, launched=[], changed=0)

    def raw_module(*, code, options=()):
        edited = device.edit and device.edit[0] in code
        if edited:
            device.changed += 1
            code = code.replace(*device.edit)
        # a header of CUDA's, which a device has; to optimise an edit costs more than its one run or two
        code, level = code.replace("#include <cuda_bf16.h>\n", ""), "-O0" if edited else "-O1"
        library = built(code, tuple(options), level)
        return SimpleNamespace(
            compile=lambda: None, get_function=lambda name: Function(device, library, name)
        )

    cupy.RawModule = raw_module
    return device

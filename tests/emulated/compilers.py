"""What turns CUDA C++ into code for a GPU, where there is none: nvcc, or NVRTC from NVIDIA's wheel. Each
tells of registers and spills.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from emulated.device import folder_of_results
from peref.backends.cuda.launch import VARIANTS

SM = (80, 90, 100, 120)  # CUDA 12.8 is the first that knows them all
OWN = {90: "90a"}  # with the instructions that are one architecture's own
# as CuPy compiles: for the device itself, flushing to zero
HOW = ("-std=c++17", "-ftz=true")


class Refused(Exception):
    """What a compiler said."""


def nvcc(path, text, defines, sm):
    """ptxas's words for each of sm, each from PTX of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.cu"
        file.write_text(text, encoding="utf-8")
        command = [
            path,
            *HOW,
            "--fatbin",
            *(f"-gencode=arch=compute_{n},code=sm_{n}" for n in (OWN.get(n, n) for n in sm)),
            "-Xptxas",
            "-v",
            *defines,
            "-o",
            Path(folder) / "out",
            file,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stderr


def nvrtc(path, text, defines, sm):
    """The same through NVRTC, as CuPy does: without an include path."""
    library, log = ctypes.CDLL(path), ""
    for n in sm:
        program = ctypes.c_void_p()
        library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
        options = [f"-arch=sm_{OWN.get(n, n)}", *HOW, "--ptxas-options=-v", *defines]
        failed = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        )
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        said = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, said)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        log += said.value.decode()
        if failed:
            raise Refused(log)
    return log


@cache
def compiler():
    """(name, version, function of text, defines and architectures), or None where there is none."""
    if path := shutil.which("nvcc"):
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        return ("nvcc", re.search(r"release (\S+),", version)[1], lambda *given: nvcc(path, *given))
    for place in sys.path:
        for path in sorted(Path(place or ".").glob("nvidia/*/lib/libnvrtc.so.*")):
            major, minor = ctypes.c_int(), ctypes.c_int()
            ctypes.CDLL(str(path)).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
            return (
                "NVRTC",
                f"{major.value}.{minor.value}",
                lambda *given, path=str(path): nvrtc(path, *given),
            )
    return None


def figures(said):
    """Registers of each kernel, bytes spilled, bytes of stack, from a compiler's words."""
    return tuple(
        [int(n) for n in re.findall(pattern, said)]
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill", r"(\d+) bytes stack")
    )


def variants(every_sm=False):
    """(file, defines, architectures) of each variant of the kernels: all of SM, or one in turn, where all
    would take too long.
    """
    each = [(file, defines) for file, some in VARIANTS.items() for defines in some]
    return [(*one, SM if every_sm else (SM[n % len(SM)],)) for n, one in enumerate(each)]


def report(text, defines, sm):
    """What the compiler says for the architectures sm; kept under the hash of all that it depends on."""
    name, version, run = compiler()
    key = hashlib.sha256(repr((name, version, HOW, OWN, sm, defines, text)).encode()).hexdigest()
    file = folder_of_results() / f"{key[:32]}.log"
    if not file.exists():
        said = run(text, defines, sm)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(said, encoding="utf-8")
        part.replace(file)
    return file.read_text(encoding="utf-8")

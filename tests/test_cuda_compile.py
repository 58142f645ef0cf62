"""Every variant of every CUDA kernel compiles for sm_80 and sm_90, within its registers and with nothing spilled to memory."""

import re
import shutil
import subprocess

import pytest

from peref.backends.cuda.launch import FOLDER, VARIANTS, declared, source

NVCC = shutil.which("nvcc")
ROWS = 64  # registers that leave room for all the threads of an SM that a kernel bound by memory wants, but for the widest
REGISTERS = dict.fromkeys(VARIANTS, ROWS) | {
    "attention": 208,
    "attention_backward": 255,
    "retention": 208,
}  # of 255 that a thread can have; blocks of 128
ALL = [(file, defines) for file, variants in VARIANTS.items() for defines in variants]
TITLES = ["-".join([file, *(f"{k}{v}" for k, v in defines.items())]) for file, defines in ALL]


def test_every_file_has_its_variants():
    assert {p.stem for p in FOLDER.glob("*.cu")} == set(VARIANTS)
    for file in VARIANTS:
        assert declared(file)


def test_no_header_is_asked_for():
    """NVRTC finds none where only the wheel is."""
    for file in VARIANTS:
        assert "#include" not in source(file)


@pytest.mark.skipif(NVCC is None, reason="no nvcc here: the CUDA kernels were compiled for no device")
@pytest.mark.parametrize(("file", "defines"), ALL, ids=TITLES)
def test_compiles(tmp_path, file, defines):
    """By nvcc, with what ptxas says of registers and spills."""
    text = tmp_path / f"{file}.cu"
    text.write_text(source(file), encoding="utf-8")
    options = [f"-D{k}={v}" for k, v in defines.items()]
    targets = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 90)]
    made = subprocess.run(
        [NVCC, "-std=c++17", "--fatbin", *targets, "-Xptxas", "-v", *options, "-o", tmp_path / "out", text],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "warning" not in made.stderr, made.stderr
    used = [int(n) for n in re.findall(r"Used (\d+) registers", made.stderr)]
    spilled = [int(n) for n in re.findall(r"(\d+) bytes spill", made.stderr)]
    assert len(used) == 2 * len(declared(file))
    assert max(used) <= REGISTERS[file], f"{max(used)} registers, {REGISTERS[file]} allowed"
    assert sum(spilled) == 0, made.stderr

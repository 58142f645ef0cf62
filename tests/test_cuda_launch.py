"""What a launch refuses, and what the cuda ops never do: wait for the device, or copy to it."""

from pathlib import Path
from threading import Barrier, get_ident
from types import SimpleNamespace

import numpy as np
import pytest
from check import same
from emulated.device import FAILED, Fault, Function
from emulated.twins import emulated, sent
from fake_device import Device
from test_cuda_recurrences import OPS, arrays
from test_ops import random

from peref.backends.cuda import (
    activation,
    attention,
    embedding,
    launch,
    loss,
    norm,
    optimizer,
    retention,
    turn,
)
from peref.backends.cuda.launch import declared
from peref.errors import Misuse
from peref.ops.place import At
from peref.tape import Tape


def call(cupy, *, n=4, **other):
    given = {"y": cupy.ones(4, np.float32), "x": cupy.ones(4, np.float32), **other}
    launch.launch("activation.gelu_forward", (1,), 32, given["y"], given["x"], n, 0.8, 0.04)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda c: {"x": np.ones(4, np.float32)}, "x is numpy.ndarray"),
        (lambda c: {"x": None}, "x is builtins.NoneType"),
        (lambda c: {"y": c.ones(4)}, "y is float64; the kernel takes float32"),
        (lambda c: {"x": c.ones((4, 4), np.float32).T}, r"x \[4, 4\] is not C-contiguous"),
        (lambda c: {"n": 2.5}, "n is 2.5; the kernel takes int64"),
    ],
)
def test_what_a_kernel_does_not_take_is_refused(make, said):
    """In words, before it runs."""
    with emulated() as cupy:
        with pytest.raises(Misuse, match=said):
            call(cupy, **make(cupy))
        assert not cupy.emulated.launched
        call(cupy)
        assert cupy.emulated.launched


@pytest.mark.parametrize(("grid", "block"), [((1, 65536), 32), ((1, 1, 65536), 32), ((1,), 1056)])
def test_a_grid_that_no_device_has_is_an_error_here_too(grid, block):
    """So that no test passes where a device would refuse."""
    with emulated() as cupy, pytest.raises(Fault, match="no device has a grid of"):
        launch.launch(
            "activation.gelu_forward",
            grid,
            block,
            cupy.ones(4, np.float32),
            cupy.ones(4, np.float32),
            4,
            0.8,
            0.04,
        )


def test_sizes_beyond_an_int_are_refused():
    """Not cut off."""
    with pytest.raises(Misuse, match="C is 2147483648"):
        launch.argument("C", 2**31, "int", False, False)


def test_a_wrong_number_of_arguments():
    with emulated() as cupy, pytest.raises(Misuse, match="takes 5 arguments, 1 given"):
        launch.launch("activation.gelu_forward", (1,), 32, cupy.ones(4, np.float32))


def test_nothing_to_do_is_nothing_done():
    """Arrays without elements launch no kernel."""
    with emulated() as cupy:
        assert activation.gelu(cupy.ones((0, 3), np.float32)).shape == (0, 3)
        assert norm.rms_norm(cupy.ones((2, 0, 3), np.float32), None, eps=1e-5).shape == (2, 0, 3)
        assert not cupy.emulated.launched


def test_too_little_shared_memory_is_a_fault():
    """The emulation knows what a kernel was given: what is beyond is no memory."""
    at = At.of(3)
    q = [random(1, 1, 3, 4).astype(np.float32)] * 3
    with emulated() as cupy, pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "attention_bytes", lambda *a, **k: 64)
        with pytest.raises(Fault, match="beyond the dynamic shared memory"):
            attention.attention(*sent(cupy, q), at=sent(cupy, at), scale=1.0)


WRONG = """#define KERNEL extern "C" __global__ void
KERNEL one(float *y, int wrong) {
  DYNAMIC_SHARED(shared);
  if (wrong == 1 && threadIdx.x) return;
  if (wrong == 2 && threadIdx.x % 2) __syncwarp();
  if (wrong == 3 && !threadIdx.x) shared[64] = 0;
  if (wrong == 4) cp_async(in_shared(shared + 8), shared, true);
  for (int n = 0; wrong == 5 && n < 2; n++) cp_async(in_shared(shared), shared + 16, true);
  __syncthreads();
  y[threadIdx.x] = threadIdx.x;
}
"""


@pytest.mark.parametrize("wrong", FAILED)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_fault_is_told_as_what_it_is(wrong, seed):
    """And a right launch behind it is right."""
    with emulated(seed) as cupy:
        one = cupy.RawModule(code=WRONG).get_function("one")
        one.max_dynamic_shared_size_bytes = 64
        y = cupy.zeros(48, np.float32)
        with pytest.raises(Fault, match=FAILED[wrong]):
            one((2,), (48,), (y, np.int32(wrong)), shared_mem=64)
        one((2,), (48,), (y, np.int32(0)), shared_mem=64)
        assert y.get().tolist() == [*range(48)]


def test_a_gpu_with_too_little_shared_memory():
    """Is told so in words; the 99 KiB that some have for a block are enough for every width."""
    q = [random(1, 1, 2, 100).astype(np.float32)] * 3
    for most in (99 * 1024, 64 * 1024):
        with emulated() as cupy:
            cupy.cuda.runtime.deviceGetAttribute = lambda which, index, most=most: most
            run = lambda cupy=cupy: retention.retention(
                *sent(cupy, q), None, None, log_decay=cupy.asarray(np.log([0.9])), chunk=4, scale=1.0
            )
            if most > 64 * 1024:
                run()
                continue
            with pytest.raises(
                Misuse, match=r"retention\.outputs takes 100352 bytes .* at most 65536 on this GPU"
            ):
                run()


@pytest.mark.parametrize("fixed", [0, 260])
def test_shared_memory_of_a_fixed_size_counts(monkeypatch, fixed):
    """A kernel that declares some by itself has that much less to ask for."""
    monkeypatch.setattr(Function, "shared_size_bytes", fixed)
    q = [random(1, 1, 2, 100).astype(np.float32)] * 3
    with emulated() as cupy:
        cupy.cuda.runtime.deviceGetAttribute = lambda which, index: 100352
        run = lambda: retention.retention(
            *sent(cupy, q), None, None, log_decay=cupy.asarray(np.log([0.9])), chunk=4, scale=1.0
        )
        if not fixed:
            run()
            return
        with pytest.raises(
            Misuse, match=r"takes 100352 bytes of shared memory .* at most 100092 on this GPU"
        ):
            run()


AT = At.of(9, seg=np.array([[0, 1, 1, 1, 1, 2, 2, 2, 2]]), positions=np.arange(9))
F, I = np.float32, np.int64
CALLS = {
    "take": (embedding.take, [random(5, 4).astype(F), np.arange(6).astype(I) % 5], {}),
    "rms_norm": (norm.rms_norm, [random(5, 4).astype(F), random(4).astype(F)], {"eps": 1e-5}),
    "layer_norm": (
        norm.layer_norm,
        [random(5, 4).astype(F), random(4).astype(F), random(4).astype(F)],
        {"eps": 1e-5},
    ),
    "swiglu": (activation.swiglu, [random(5, 4).astype(F), random(5, 4).astype(F)], {}),
    "gelu": (activation.gelu, [random(5, 4).astype(F)], {}),
    "turn": (
        turn.turn,
        [random(1, 2, 9, 4).astype(F), random(9, 2), 1 + random(9, 2) / 9],
        {"layout": "half"},
    ),
    "cross_entropy": (loss.cross_entropy, [random(5, 4).astype(F), np.arange(5).astype(I) % 4], {}),
    "attention": (
        attention.attention,
        [
            *[random(1, 2, 9, 4).astype(F)] * 3,
            random(2, len(AT.distances)),
            random(1, 2, 9, 9).astype(F),
            random(1, 2, 9, 1),
            random(1, 2, 1, 9),
        ],
        {"at": AT, "scale": 0.5},
    ),
    "retention": (
        retention.retention,
        [*[random(1, 2, 9, 4).astype(F)] * 3, None, None],
        {"log_decay": np.log([0.9, 0.8]), "chunk": 4, "scale": 1.0},
    ),
}
PACKED = np.array([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
for name, (op, _, settings) in OPS.items():
    given = arrays(name, 9, 5, 3, True, PACKED)
    CALLS[name] = (
        op,
        [
            a if name == "diagonal_scan" and k == 1 else a.astype(F if a.dtype.kind == "f" else I)
            for k, a in enumerate(given)
        ],
        settings,
    )


def on_tape(cupy, name):
    """The tape of a call with its arrays and place on the device, and its result."""
    op, arrays, settings = CALLS[name]
    there, settings = sent(cupy, arrays), {k: sent(cupy, s) for k, s in settings.items()}
    tape, counts = Tape(), Device.now.counts
    before = counts["syncs"], counts["copies"]
    y = op(*(tape.watch(a) if a is not None and a.dtype.kind == "f" else a for a in there), **settings)
    assert (counts["syncs"], counts["copies"]) == before
    return tape, y[0] if isinstance(y, tuple) else y


@pytest.mark.parametrize("name", CALLS)
def test_no_op_waits_or_copies(name):
    """Forward and backward, with arrays and place on the device: such a step can be recorded."""
    with emulated() as cupy:
        tape, y = on_tape(cupy, name)
        before = Device.now.counts["syncs"], Device.now.counts["copies"]
        tape.gradients(y, cupy.ones(y.shape, y.dtype))
        assert cupy.emulated.launched
        assert (Device.now.counts["syncs"], Device.now.counts["copies"]) == before


@pytest.mark.parametrize("name", CALLS)
def test_backward_runs_a_second_time(name):
    """To the same gradients, for it changes nothing that forward saved; the loss, which does, refuses."""
    with emulated() as cupy:
        tape, y = on_tape(cupy, name)
        ((op, saved, inputs, _),), dy = tape.entries, cupy.full(y.shape, 2, y.dtype)
        wants = (tuple(a is not None for a in inputs),) if op.selective else ()
        found = lambda: [None if g is None else g.get() for g in op.backward(saved, dy, *wants)]
        first = found()
        if name == "cross_entropy":
            with pytest.raises(RuntimeError, match="its backward changes what forward saved and runs once"):
                found()
        else:
            same(found(), first, 0)


def test_adamw_neither():
    with emulated() as cupy:
        arrays = [cupy.ones(5, np.float32) for _ in range(4)]
        numbers = [cupy.asarray(np.array(0.1)), cupy.asarray(np.array(3))]
        before = Device.now.counts["syncs"], Device.now.counts["copies"]
        optimizer.adamw(*arrays, *numbers, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1)
        assert (Device.now.counts["syncs"], Device.now.counts["copies"]) == before


def test_what_is_launched_is_what_is_compiled():
    """Each variant that the wrappers ask for is one of those that are compiled for sm_80 and sm_90."""
    with emulated() as cupy, pytest.raises(AssertionError, match="a variant that no test compiles"):
        launch.compiled(cupy, "wkv6", "wkv6_forward", frozenset({("WIDTH", 16)}))


@pytest.mark.parametrize("fails", [False, True])
def test_what_every_step_needs_is_compiled_beside_each_other(fails):
    """For the device that the caller uses, and waited for where it is launched; what failed there is asked
    for again, and says why.
    """
    came = Barrier(len(launch.EVERY), timeout=30)  # all are under way at once

    def compiling():
        came.wait()
        if fails:
            raise RuntimeError("an operand is missing")
        compiled.append(1)

    compiled, one = [], SimpleNamespace(compile=compiling, get_function=lambda name: [*compiled])
    used, caller = [], get_ident()
    # a new thread has the first device, the caller the second
    here = lambda n: int(get_ident() == caller) if n is None else n
    device = lambda n=None: SimpleNamespace(id=here(n), use=lambda: used.append(n))
    xp = SimpleNamespace(RawModule=lambda **given: one, cuda=SimpleNamespace(Device=device))
    xp = type("xp", (), vars(xp))
    launch.ahead(xp, {})
    assert bool(launch.compiled(xp, "norm", "norm_forward_8", frozenset())) is not fails
    assert launch.compiled(xp, "wkv4", "wkv4_forward", frozenset()) is not None
    assert used == [1] * len(launch.EVERY)


@pytest.mark.parametrize(
    ("file", "capability", "version", "own"),
    [
        ("attention", "90", (12, 9), True),
        ("attention", "90", (12, 8), False),
        ("attention", "100", (13, 0), False),
        ("norm", "90", (13, 0), False),
    ],
)
def test_who_is_compiled_for_hoppers_own_instructions(file, capability, version, own):
    """The files that ask for them, on Hopper, where NVRTC takes a second architecture."""
    asked, device = [], SimpleNamespace(id=0, compute_capability=capability)
    nvrtc = SimpleNamespace(getVersion=lambda: version)
    cuda = SimpleNamespace(Device=lambda n=None: device, nvrtc=nvrtc)
    xp = type("xp", (), {"cuda": cuda, "RawModule": lambda **given: asked.extend(given["options"])})
    launch.module(xp, file, launch.VARIANTS[file][0])
    assert ("-arch=sm_90a" in asked) is own


def test_backward_of_attention_is_compiled_beside_forward(monkeypatch):
    """Where a tape says that it will be needed."""
    asked = []
    monkeypatch.setattr(attention, "begin_compiling", lambda xp, *what: asked.append(what))
    with emulated() as cupy:
        q, k, v = (cupy.asarray(np.ones((1, 1, 2, 40), np.float32)) for _ in range(3))
        attention.attention(q, k, v, at=At.of(2), scale=1.0)
        attention.attention(Tape().watch(q), k, v, at=At.of(2), scale=1.0)
    assert asked == [("attention_backward", frozenset({("WIDTH", 64)}))]


def test_every_kernel_is_called_somewhere():
    """By the wrappers, with all its parameters understood."""
    text = "".join(p.read_text(encoding="utf-8") for p in Path(launch.__file__).parent.glob("*.py"))
    for file in launch.VARIANTS:
        for name in declared(file):
            assert f'"{file}.{name}"' in text or name == "sum_parts", f"{file}.{name} is never launched"

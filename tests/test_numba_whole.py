"""Kernels become machine code once, and nothing that numba compiles beside them notices."""

import ctypes
import gc
import re
from contextlib import nullcontext
from itertools import count

import numpy as np
import pytest
from numba import njit, types
from numba.core.codegen import JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment
from numba.core.errors import TypingError
from numba.core.registry import cpu_target

from peref.backends.numba import kernel as compiling
from peref.backends.numba import whole
from peref.backends.numba.emit import I64, ir
from peref.backends.numba.kept import file_of, payload_of
from peref.backends.numba.kernel import INNER, OPTIONS
from peref.backends.numba.vector import copy

CODEGEN = cpu_target.target_context.codegen()
NAMES = map("whole_test_{}".format, count())


@pytest.fixture
def emitted(monkeypatch):
    """The modules that become machine code."""
    found, add = [], JITCPUCodegen._add_module
    monkeypatch.setattr(
        JITCPUCodegen, "_add_module", lambda self, module: (found.append(module.name), add(self, module))[1]
    )
    return found


@njit(**INNER)
def third(x, n):
    room = np.empty(n)
    room[:] = x
    return room.sum()


@njit(**INNER)
def second(x):
    return third(x, 3) + third(x, 4)


def first(y):
    y[0] = second(y[0]) + third(y[1], 2)


def made():
    """A kernel like `first`, with no machine code of it yet."""
    found = njit(**OPTIONS)(first)
    found.compile(types.void(types.float64[::1]))
    return found


def result(kernel):
    y = np.array([2.0, 5.0])
    kernel(y)
    return y[0]


def library(kernel):
    return next(iter(kernel.overloads.values())).library


def test_a_kernel_becomes_machine_code_once(emitted):
    """However many functions it calls; numba alone does so for each."""
    with whole.compiled_once(CODEGEN):
        kernel = made()
    assert [name for name in emitted if name != "nrt"] == ["first"]
    assert result(kernel) == 2 * 7 + 5 * 2
    emitted.clear()
    made()
    assert len(emitted) > 1


def test_what_a_kernel_calls_can_be_called_by_anybody():
    """By a function of the user's that numba compiles as it always does, and by a kernel after that."""
    with whole.compiled_once(CODEGEN):
        kernel = made()
    users = njit(lambda x: second(x) + np.empty(4).size)
    assert users(1.0) == 7 + 4
    assert not isinstance(library(users), whole.Whole)
    with whole.compiled_once(CODEGEN):
        again = made()
    assert isinstance(library(again), whole.Whole)
    assert result(again) == result(kernel) == result(made()) == 24


def test_functions_in_a_kernel_find_their_environments():
    with whole.compiled_once(CODEGEN):
        module = library(made())._final_module
    found = [
        (v.name, lookup_environment(v.name))
        for v in module.global_variables
        if v.name.startswith("_ZN08NumbaEnv")
    ]
    assert len(found) > 2
    for name, environment in found:
        there = ctypes.c_void_p.from_address(CODEGEN._engine.get_global_value_address(name))
        assert there.value == id(environment), name


def returns(name, *calls):
    """The code of a function that returns 1 and the sum of what `calls` return."""
    made = whole.Whole(CODEGEN, name)
    module, kind = made.create_ir_module(name), ir.FunctionType(I64, [])
    b = ir.IRBuilder(ir.Function(module, kind, name).append_basic_block())
    total = ir.Constant(I64, 1)
    for call in calls:
        total = b.add(total, b.call(ir.Function(module, kind, call), []))
    b.ret(total)
    made.add_ir_module(module)
    return made


@pytest.mark.parametrize("turned", [False, True])
def test_functions_are_linked_whoever_names_them_first(turned):
    """A kernel may name a function that only others of its functions call."""
    low, high, top = next(NAMES), next(NAMES), next(NAMES)
    libraries = [returns(low), returns(high, low)]
    libraries[1].add_linking_library(libraries[0])
    kernel = returns(top, high)
    for one in reversed(libraries) if turned else libraries:
        kernel.add_linking_library(one)
    assert kernel.get_pointer_to_function("no such function") == 0
    assert not kernel._finalized
    with global_compiler_lock:
        address = kernel.get_pointer_to_function(top)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 3
    assert not any(one._finalized for one in libraries)


def test_another_numba_compiles_as_it_always_does(monkeypatch):
    """One without the names that this stands on."""
    monkeypatch.setattr(whole, "USED", {*whole.USED, "gone"})
    with whole.compiled_once(CODEGEN):
        kernel = made()
    assert not isinstance(library(kernel), whole.Whole)
    assert result(kernel) == 24


def test_numba_is_as_before_when_a_kernel_is_refused():
    before = CODEGEN._library_class
    with pytest.raises(TypingError), whole.compiled_once(CODEGEN):
        njit(**OPTIONS)(first).compile(types.void(types.unicode_type))
    assert CODEGEN._library_class is before


def test_garbage_is_rarely_looked_for_while_compiling(monkeypatch):
    """And as often as before when that has ended."""
    compiling.kernels("embedding")
    seen, before = [], gc.get_threshold()
    monkeypatch.setattr(compiling, "FOLDER", None)
    monkeypatch.setattr(
        compiling, "compiled_once", lambda _: seen.append(gc.get_threshold()) or nullcontext()
    )
    compiling.KERNELS["embedding.take"].made()
    assert seen[0][0] > before[0]
    assert gc.get_threshold() == before


def kept_text(name):
    """What is kept of a kernel, with the names of its functions."""
    compiling.kernels(name.partition(".")[0])
    compiling.KERNELS[name].ready()
    return payload_of(file_of(compiling.FOLDER, name))


@pytest.mark.parametrize(
    ("name", "function", "kinds"),
    [
        (
            "attention.forward",
            "skips",
            b"xxxxx5ArrayIxLi2E1C8readonly7alignedE5ArrayIfLi1E1C7mutable7alignedE",
        ),
        ("attention_backward.backward", "skips", b"xxxxx5ArrayIxLi2E1C8readonly7alignedE5ArrayIfLi1E1C"),
        ("matrix.multiply", "tiles_of_rows", b""),
    ],
)
def test_a_function_is_compiled_for_one_kind_of_arguments(name, function, kinds):
    """In a kernel and its backward the same one: another layout, or a literal, would compile it again."""
    text = kept_text(name)
    assert len(set(re.findall(rb"\d%sB\dv(\d+)B" % function.encode(), text))) == 1
    assert re.search(rb"\d%sB\w+%s" % (function.encode(), kinds), text)


@pytest.mark.parametrize("name", ["attention.forward", "attention_backward.backward"])
def test_what_is_not_added_to_the_logits_is_not_compiled(name):
    """A term, a row, a column and an index have a kernel of their own, from the same text."""
    assert b"3layB" in kept_text(f"{name}_general")
    assert b"3layB" not in kept_text(name)


def test_loops_over_vectors_are_not_unrolled():
    found = njit(**OPTIONS)(lambda y, x: copy(y, 0, x, 0, y.size))
    with whole.compiled_once(CODEGEN):
        found.compile(types.void(types.float32[::1], types.float32[::1]))
    assert "llvm.loop.unroll.disable" in str(library(found)._final_module)

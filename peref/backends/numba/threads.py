"""Work for all threads: `in_parallel` calls a compiled function once for every unit, each on the thread that
is free first.

    in_parallel(body, count, (a, b, c))        body(unit, a, b, c) for unit = 0 .. count - 1

Units must write to places of their own; then who takes which changes no bit. A shared counter deals them out,
so a thread that another process holds up delays the one unit it works on, and units may differ in size. One
thread, or one unit, runs where the call is made.

This is numba's `prange` with less around it: its threads and its way to start them (numba_parallel_for), but
what a body calls is compiled into one function of one kernel, where prange compiles it into four, one inside
the other.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from peref.backends.numba.emit import I32, I64, PTR

VOID = ir.VoidType()
# args, dimensions, steps, data of a ufunc
WORK = ir.FunctionType(VOID, [PTR.as_pointer(), I64.as_pointer(), I64.as_pointer(), PTR])


def worker(context, module, compiled, kinds, shared):
    """A function that takes units from `shared` (next, count, failed, arguments), as numba's threads call
    it, until none is left.
    """
    found = ir.Function(module, WORK, module.get_unique_name("work"))
    found.linkage = "internal"
    b = ir.IRBuilder(found.append_basic_block("entry"))
    data = b.bitcast(found.args[3], shared.as_pointer())
    field = lambda k: b.gep(data, [I32(0), I32(k)], inbounds=True)
    count, given = b.load(field(1)), [b.load(field(3 + k)) for k in range(len(kinds))]
    head, loop, bad, done = (b.append_basic_block(name) for name in ("head", "loop", "bad", "done"))
    b.branch(head)
    b.position_at_end(head)
    unit = b.atomic_rmw("add", field(0), I64(1), "monotonic")
    b.cbranch(b.icmp_signed("<", unit, count), loop, done)
    b.position_at_end(loop)
    status, _ = context.call_internal_no_propagate(b, compiled.fndesc, compiled.signature, [unit, *given])
    b.cbranch(status.is_error, bad, head)
    b.position_at_end(bad)
    b.store(I64(1), field(2))
    b.branch(done)
    b.position_at_end(done)
    b.ret_void()
    return found


def borrowed(context, b, kind, x):
    """x as a unit is given it: nobody counts the users of an array. The caller keeps it, and all threads
    would change that one number for each row that a loop takes.
    """
    if not isinstance(kind, types.Array):
        return x
    array = context.make_array(kind)(context, b, x)
    array.meminfo = ir.Constant(array.meminfo.type, None)
    return array._getvalue()


@intrinsic
def in_parallel(typingctx, body, count, given):
    """body(unit, *given) for every unit below count. Raises MemoryError where a body fails: nothing else
    can fail in one.
    """
    kinds = [types.unliteral(kind) for kind in given.types]
    body.get_call_type(typingctx, (types.int64, *kinds), {})

    def codegen(context, b, sig, args):
        compiled = body.dispatcher.get_compile_result(types.void(types.int64, *kinds))
        context.active_code_library.add_linking_library(compiled.library)
        values = [
            borrowed(context, b, z, context.cast(b, b.extract_value(args[2], k), a, z))
            for k, (a, z) in enumerate(zip(given.types, kinds, strict=True))
        ]
        shared = ir.LiteralStructType([I64, I64, I64, *(v.type for v in values)])
        work = worker(context, b.module, compiled, kinds, shared)
        data = cgutils.alloca_once(b, shared)
        field = lambda k: b.gep(data, [I32(0), I32(k)], inbounds=True)
        units = context.cast(b, args[1], sig.args[1], types.int64)
        for k, v in enumerate((I64(0), units, I64(0), *values)):
            b.store(v, field(k))
        threads = b.sext(
            b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, []), "get_num_threads"), []),
            I64,
        )
        busy = b.select(b.icmp_signed("<", units, threads), units, threads)
        void = b.bitcast(data, PTR)
        with b.if_else(b.icmp_signed(">", busy, I64(1))) as (many, one):
            with many:
                run = cgutils.get_or_insert_function(
                    b.module, ir.FunctionType(VOID, [PTR] * 5 + [I64] * 3), "numba_parallel_for"
                )
                sizes, nothing = cgutils.alloca_once_value(b, busy), ir.Constant(PTR, None)
                # numba remembers the last number for the calls that follow, so it is that of all threads
                b.call(
                    run,
                    [
                        b.bitcast(work, PTR),
                        nothing,
                        b.bitcast(sizes, PTR),
                        nothing,
                        void,
                        I64(0),
                        I64(0),
                        threads,
                    ],
                )
            with one:
                b.call(work, [ir.Constant(t, None) for t in WORK.args[:3]] + [void])
        with cgutils.if_unlikely(b, b.icmp_signed("!=", b.load(field(2)), I64(0))):
            context.call_conv.return_user_exc(b, MemoryError, ("no room for what a kernel needs",))
        return context.get_dummy_value()

    return types.void(body, count, given), codegen

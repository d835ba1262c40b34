# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""The execution of a GPU's kernels on a CPU, with NumPy.

All threads of a launch take each step together; a mask says which of them are active.  Reads and
writes out of bounds are errors, and so are accesses of two threads to one element, one of them a
write, without a barrier between them.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import tirx
from tvm_ffi import structural_walk

from tvm_fixes.tirx import semantics
from tvm_fixes.tirx.library_functions import with_library_functions
from tvm_fixes.tirx.loop_nest import substitute
from tvm_fixes.tirx.transform import GuardIntegerDivision
from tvm_fixes.tirx.transform.decompose_reduction import decompose, may_be_empty

from .gpu_kernels import GPU
from .simt_fragments import CALLS, Fragments

WARP = 32
_NOBODY = -1
_SIZE = 5
_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z", "blockIdx.x", "blockIdx.y", "blockIdx.z")


class Unsupported(Exception):
    """The interpreter does not know a part of a kernel."""


class Fault(AssertionError):
    """An access that is out of bounds, or that races with another one."""


@tvm.ir.instrument.pass_instrument
class _BeforeSplit:
    """Keeps the module before host and device code are separated."""

    def __init__(self) -> None:
        self.function: tirx.PrimFunc | None = None

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        if str(info.name).endswith("SplitHostDevice"):
            [(_, self.function)] = mod.functions_items()


# Several sizes run the same kernel.
@functools.lru_cache(maxsize=16)
def lowered(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled kernel after the guards, and all passes of TVM that concern its threads."""
    found = _BeforeSplit()
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    with GPU:
        mod = tvm.transform.Sequential(semantics.after_lowering())(mod)
    with tvm.transform.PassContext(instruments=[found]):
        tirx.get_default_tir_pipeline(GPU)[0](tirx.transform.BindTarget(GPU)(mod))
    assert found.function is not None
    return found.function


def execute(function: tirx.PrimFunc, arguments: list[Any]) -> None:
    """Run a scheduled kernel; `arguments` are arrays, which it writes to, and scalars."""
    machine = _Machine()
    kernel = lowered(function)
    for parameter, argument in zip(kernel.params, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            machine.memory[parameter] = _Memory(argument.reshape(1, -1).view(np.uint8))
            for extent, size in zip(parameter.shape, argument.shape, strict=True):
                if isinstance(extent, tirx.Var):
                    machine.values[extent] = np.asarray([size], str(extent.ty))
            if isinstance(parameter.elem_offset, tirx.Var):
                machine.values[parameter.elem_offset] = np.zeros(1, np.int64)
        else:
            machine.values[parameter] = np.asarray([argument], str(parameter.ty))
    machine.run(kernel.body)


def assert_equals_reference(
    before: tirx.PrimFunc,
    after: tirx.PrimFunc,
    rng: np.random.Generator,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Compare a scheduled kernel with the unscheduled one, compiled for a CPU.

    Parameters
    ----------
    before, after : tirx.PrimFunc
        The kernel without and with a schedule.
    rng : numpy.random.Generator
        Draws small integers as elements: their sums are exact.
    sizes : mapping of str to int
        The values of symbolic extents by name; 5 for others.

    Raises
    ------
    Unsupported
        If the interpreter does not know a part of the kernel.
    Fault
        If an access is out of bounds, or races with another one.
    AssertionError
        If results differ.
    """
    arguments = [_argument(parameter, rng, sizes) for parameter in before.params]
    reference = with_library_functions(decompose(before) if may_be_empty(before) else before)
    mod = tvm.IRModule({"kernel": reference.with_attr("global_symbol", "kernel")})
    with tvm.target.Target("llvm"):
        mod = GuardIntegerDivision()(mod)
    expected = [tvm.runtime.tensor(x) if isinstance(x, np.ndarray) else x for x in arguments]
    tvm.tirx.build(mod, "llvm")["kernel"](*expected)
    execute(after, arguments)
    for got, want in zip(arguments, expected, strict=True):
        if isinstance(got, np.ndarray):
            _assert_close(got, want.numpy(), arguments)


def element_count(parameter: tirx.Var, sizes: Mapping[str, int]) -> int:
    """The number of elements of a parameter; 1 for a scalar."""
    return 1 if isinstance(parameter.ty, tvm.ir.PrimType) else math.prod(_shape(parameter, sizes))


def _shape(parameter: tirx.Var, sizes: Mapping[str, int]) -> list[int]:
    symbols = {v for extent in parameter.shape for v in tirx.analysis.undefined_vars(extent)}
    values = {each: tirx.const(sizes.get(each.name, _SIZE), str(each.ty)) for each in symbols}
    simplify = tvm.sym.Analyzer().simplify
    return [int(simplify(substitute(extent, values))) for extent in parameter.shape]


def _argument(parameter: tirx.Var, rng: np.random.Generator, sizes: Mapping[str, int]) -> Any:
    if isinstance(parameter.ty, tvm.ir.PrimType):
        return sizes.get(parameter.name, _SIZE)
    dtype = _dtype(str(parameter.dtype))
    # No zeros: what becomes of NaN as an integer is undefined.
    choices = {"b": (0, 1), "u": (1, 2, 3), "i": (1, 2, 3)}.get(dtype.kind, (-3, -2, -1, 1, 2, 3))
    return np.asarray(rng.choice(choices, _shape(parameter, sizes))).astype(dtype)


def _assert_close(got: np.ndarray, want: np.ndarray, arguments: list[Any]) -> None:
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    arrays = [x for x in arguments if isinstance(x, np.ndarray) and x.dtype.kind not in "iub"]
    tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-6}[min(x.dtype.itemsize for x in arrays)]
    got, want = got.astype(float), want.astype(float)
    largest = np.abs(want[np.isfinite(want)]).max(initial=1)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * largest)


@dataclass
class _Memory:
    """The bytes of a buffer: a row for all threads, for each block, or for each thread."""

    bytes: np.ndarray
    scope: str = "global"
    users: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def user(self, what: str, itemsize: int) -> np.ndarray:
        """For each element: the lane that last read or wrote it, and the epochs of the access."""
        if (what, itemsize) not in self.users:
            shape = (3, self.bytes.shape[0], self.bytes.shape[1] // itemsize)
            self.users[what, itemsize] = np.full(shape, _NOBODY)
        return self.users[what, itemsize]


class _Machine:
    def __init__(self) -> None:
        self.values: dict[tirx.Var, np.ndarray] = {}
        self.memory: dict[Any, _Memory] = {}
        self.offsets: dict[Any, Any] = {}
        self.active = np.ones(1, bool)
        self.block = self.thread = np.zeros(1, int)
        self.in_launch = False
        # Counts of the barriers of the block, and of the warp.
        self.epochs = [0, 0]
        self.fragments = Fragments(self)

    # Statements.

    def run(self, stmt: tirx.Stmt) -> None:
        if not self.active.any():
            return
        run = _STATEMENTS.get(type(stmt))
        if run is None:
            raise Unsupported(type(stmt).__name__)
        run(self, stmt)

    @contextmanager
    def where(self, condition: np.ndarray) -> Iterator[None]:
        before, self.active = self.active, self.active & condition
        try:
            yield
        finally:
            self.active = before

    def sequence(self, stmt: tirx.SeqStmt) -> None:
        for part in stmt:
            self.run(part)

    def bind(self, stmt: tirx.Bind) -> None:
        self.values[stmt.var] = self.value(stmt.value)

    def declare(self, stmt: tirx.DeclBuffer) -> None:
        if stmt.buffer in self.memory or str(stmt.buffer.scope()).startswith("wmma"):
            return
        data = stmt.data
        while isinstance(data, tvm.ir.Call):
            data = data.args[0]
        self.memory[stmt.buffer] = self.memory[data]
        self.offsets[stmt.buffer] = stmt.buffer.elem_offset

    def allocate(self, stmt: tirx.AllocBuffer) -> None:
        buffer = stmt.buffer
        scope = str(buffer.scope()).partition(".")[0]
        if scope == "wmma":
            self.fragments.allocate(buffer)
            return
        count = math.prod(int(self.scalar(extent)) for extent in buffer.shape)
        rows = {"global": 1, "shared": int(self.block.max()) + 1, "local": len(self.active)}[scope]
        vector = int(tvm.DataType(str(buffer.dtype)).lanes)
        size = count * vector * _dtype(str(buffer.dtype)).itemsize
        # All bits set are a NaN, and an index that is out of bounds.
        self.memory[buffer] = _Memory(np.full((rows, size), 255, np.uint8), scope)

    def attribute(self, stmt: tirx.AttrStmt) -> None:
        if stmt.attr_key == "thread_extent" and not self.in_launch:
            self.launch(stmt)
        else:
            self.run(stmt.body)

    def launch(self, stmt: tirx.AttrStmt) -> None:
        threads: dict[str, list[Any]] = {tag: [] for tag in _TAGS}
        counts = dict.fromkeys(_TAGS, 1)
        saved = self.values, self.active
        self.values = dict(self.values)

        def look(node: tirx.AttrStmt) -> None:
            if node.attr_key == "thread_extent":
                tag = str(node.node.thread_tag)
                if not threads[tag]:
                    counts[tag] = max(int(self.scalar(node.value)), 1)
                threads[tag].append(node)

        def bind(node: tirx.Bind) -> None:
            # An extent may use a variable that is bound between those of the threads.
            with suppress(KeyError, Fault, Unsupported):
                self.bind(node)

        structural_walk(stmt, [(tirx.AttrStmt, look), (tirx.Bind, bind)], order="pre")
        extents = list(counts.values())
        lanes = np.arange(math.prod(extents))
        rest = lanes
        for (_, found), extent in zip(threads.items(), extents, strict=True):
            for node in found:
                self.values[node.node.var] = (rest % extent).astype(str(node.node.var.ty))
            rest = rest // extent
        block_size = math.prod(extents[:3])
        self.active, self.in_launch = np.ones(len(lanes), bool), True
        self.block, self.thread = lanes // block_size, lanes % block_size
        for memory in self.memory.values():
            memory.users.clear()
        try:
            self.run(stmt.body)
        finally:
            (self.values, self.active), self.in_launch = saved, False
            self.block = self.thread = np.zeros(1, int)

    def loop(self, stmt: tirx.For) -> None:
        if stmt.thread_binding is not None or int(stmt.kind) == tirx.ForKind.PARALLEL:
            raise Unsupported("a loop of another kind")
        first, count = self.value(stmt.min), self.value(stmt.extent)
        most = int(np.max(np.where(self.active, count, 0), initial=0))
        for index in range(most):
            with self.where(np.broadcast_to(index < count, self.active.shape)):
                self.values[stmt.loop_var] = first + np.asarray(index, first.dtype)
                self.run(stmt.body)

    def while_(self, stmt: tirx.While) -> None:
        before = self.active
        while True:
            self.active = self.active & self.value(stmt.condition).astype(bool)
            if not self.active.any():
                break
            self.run(stmt.body)
        self.active = before

    def branch(self, stmt: tirx.IfThenElse) -> None:
        condition = self.value(stmt.condition).astype(bool)
        with self.where(condition):
            self.run(stmt.then_case)
        if stmt.else_case is not None:
            with self.where(~condition):
                self.run(stmt.else_case)

    def evaluate(self, stmt: tirx.Evaluate) -> None:
        call = stmt.value
        name = getattr(getattr(call, "op", None), "name", "")
        if name == "tirx.tvm_storage_sync":
            whole = np.bincount(self.block)
            per_block = np.bincount(self.block[self.active], minlength=len(whole))
            if call.args[0].value != "warp" and not set(per_block - whole).issubset({0, *-whole}):
                raise Fault("a barrier that not all threads of a block reach")
            self.epochs[call.args[0].value == "warp"] += 1
        elif isinstance(call, tvm.ir.Call):
            self.value(call)

    def store(self, stmt: tirx.BufferStore) -> None:
        memory, rows, index, mask, dtype = self.position(stmt.buffer, stmt.indices)
        value = self.value(stmt.value)
        value = np.broadcast_to(value if index.ndim == value.ndim else value[:, None], index.shape)
        typed = memory.bytes.view(dtype)
        # A write that changes nothing harms no other thread.
        changes = mask & (typed[rows, index] != value) if typed.size else mask
        self.check_use(memory, rows, index, changes, dtype, is_write=True)
        typed[rows[mask], index[mask]] = value[mask]
        if memory.scope != "local" and not np.array_equal(
            typed[rows[mask], index[mask]].view(np.uint8),
            np.ascontiguousarray(value[mask].astype(dtype)).view(np.uint8),
        ):
            raise Fault(f"threads write different values to an element of {stmt.buffer.name}")

    # Memory.

    def position(self, buffer: Any, indices: Any) -> tuple[Any, ...]:
        """The memory, and for each active lane (and element of a vector) the row and the index."""
        if buffer not in self.memory:
            raise Unsupported(f"the memory of {buffer.name}")
        flat = np.zeros(1, np.int64)
        for part, extent in zip(indices, buffer.shape, strict=True):
            outer = flat * int(self.scalar(extent))
            flat = np.add(*_aligned(outer, self.value(part).astype(np.int64)))
        if self.offsets.get(buffer) is not None:
            flat = flat + self.value(self.offsets[buffer]).astype(np.int64)
        vector = int(tvm.DataType(str(buffer.dtype)).lanes)
        if vector > 1:
            flat = flat[:, None] * vector + np.arange(vector)
        return self.vector_position(buffer, flat)

    def vector_position(self, buffer: Any, flat: np.ndarray) -> tuple[Any, ...]:
        """Like :meth:`position`, for positions in the memory."""
        memory, lanes = self.memory[buffer], len(self.active)
        flat = np.broadcast_to(flat, (lanes, *flat.shape[1:]))
        rows = {"global": np.zeros(lanes, int), "shared": self.block, "local": np.arange(lanes)}
        row, mask = rows[memory.scope], self.active
        if flat.ndim == 2:
            row, mask = (np.broadcast_to(each[:, None], flat.shape) for each in (row, mask))
        dtype = _dtype(str(buffer.dtype))
        size = memory.bytes.shape[1] // dtype.itemsize
        if ((flat < 0) | (flat >= size))[mask].any():
            raise Fault(f"{buffer.name} has {size} elements, index {flat[mask].max()}")
        return memory, row, np.where(mask, flat, 0), mask, dtype

    def check_use(
        self, memory: _Memory, rows: Any, index: Any, mask: Any, dtype: Any, *, is_write: bool
    ) -> None:
        if memory.scope == "local" or not self.in_launch:
            return
        lanes = np.broadcast_to(
            np.arange(len(mask)).reshape(-1, *[1] * (mask.ndim - 1)), mask.shape
        )
        at = rows[mask], index[mask]
        mine = lanes[mask]
        for what in ("write", "read") if is_write else ("write",):
            other, block_epoch, warp_epoch = (
                part[at] for part in memory.user(what, dtype.itemsize)
            )
            same_block = self.block[other] == self.block[mine]
            same_warp = same_block & (self.thread[other] // WARP == self.thread[mine] // WARP)
            synced = same_block & (block_epoch < self.epochs[0])
            synced |= same_warp & (warp_epoch < self.epochs[1])
            if ((other != _NOBODY) & (other != mine) & ~synced).any():
                raise Fault("two threads access an element without a barrier between them")
        user = memory.user("write" if is_write else "read", dtype.itemsize)
        for part, value in zip(user, (mine, *self.epochs), strict=True):
            part[at] = value

    # Expressions.

    def scalar(self, expr: Any) -> Any:
        return self.value(expr).reshape(-1)[0]

    def value(self, expr: Any) -> np.ndarray:
        """The value for each lane, or one for all; a vector adds an axis."""
        if isinstance(expr, tirx.IntImm | tirx.FloatImm):
            return np.asarray([expr.value], _dtype(str(expr.ty)))
        if isinstance(expr, tirx.Var):
            return self.values[expr]
        binary = _BINARY.get(type(expr))
        with np.errstate(all="ignore"):
            if binary is not None:
                a, b = _aligned(self.value(expr.a), self.value(expr.b))
                dtype = _dtype(str(expr.ty))
                if dtype.kind in "iu" and dtype.itemsize < 4:
                    # As in C, where the result has 32 bits until it is stored or cast.
                    return np.asarray(binary(a.astype("int32"), b.astype("int32")))
                return np.asarray(binary(a, b)).astype(dtype)
            compute = _EXPRESSIONS.get(type(expr))
            if compute is None:
                raise Unsupported(type(expr).__name__)
            return compute(self, expr)

    def load(self, expr: tvm.ir.TensorLoad) -> np.ndarray:
        memory, rows, index, mask, dtype = self.position(expr.source, expr.indices)
        self.check_use(memory, rows, index, mask, dtype, is_write=False)
        typed = memory.bytes.view(dtype)
        return typed[rows, index] if typed.size else np.zeros(index.shape, dtype)

    def both(self, expr: tirx.And) -> np.ndarray:
        first = self.value(expr.a).astype(bool)
        with self.where(first):
            return first & self.value(expr.b).astype(bool)

    def either(self, expr: tirx.Or) -> np.ndarray:
        first = self.value(expr.a).astype(bool)
        with self.where(~first):
            return first | self.value(expr.b).astype(bool)

    def choose(self, condition: Any, first: Any, second: Any) -> np.ndarray:
        where = self.value(condition).astype(bool)
        if where.ndim == 2:
            return np.where(*_aligned(where, self.value(first)), self.value(second))
        with self.where(where):
            a = self.value(first)
        with self.where(~where):
            b = self.value(second)
        a, b = _aligned(a, b)
        return np.where(where[:, None] if a.ndim == 2 else where, a, b)

    def cast(self, expr: tirx.Cast) -> np.ndarray:
        value = self.value(expr.value)
        return value.astype(_dtype(str(expr.ty)))

    def ramp(self, expr: tirx.Ramp) -> np.ndarray:
        base, stride = self.value(expr.base), self.value(expr.stride)
        return base[:, None] + stride[:, None] * np.arange(int(expr.lanes), dtype=base.dtype)

    def broadcast(self, expr: tirx.Broadcast) -> np.ndarray:
        return np.repeat(self.value(expr.value)[:, None], int(expr.lanes), axis=1)

    def let(self, expr: tirx.Let) -> np.ndarray:
        self.values[expr.var] = self.value(expr.value)
        return self.value(expr.body)

    def call(self, expr: tvm.ir.Call) -> np.ndarray:
        name = str(getattr(expr.op, "name", "")).rpartition(".")[2]
        if name == "if_then_else":
            return self.choose(*expr.args)
        if name.startswith("tvm_warp_"):
            return self.across_warp(name, expr)
        if name in CALLS:
            return self.fragments.call(name, expr.args)
        dtype = _dtype(str(expr.ty))
        if name == "call_pure_extern" and expr.args[0].value in _FROM_BITS:
            return np.ascontiguousarray(self.value(expr.args[1])).view(dtype)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise Unsupported(f"a call of {name}")
        operands = [self.value(operand) for operand in expr.args]
        if name == "reinterpret":
            return np.ascontiguousarray(operands[0]).view(dtype)
        is_narrow = dtype.itemsize == 2 and dtype.kind not in "iu"
        if is_narrow:
            operands = [operand.astype(np.float32) for operand in operands]
        return np.asarray(function(*operands)).astype(dtype)

    def across_warp(self, name: str, expr: tvm.ir.Call) -> np.ndarray:
        lanes = np.arange(len(self.active))
        if name == "tvm_warp_activemask":
            bits = np.zeros(len(lanes), np.uint32)
            for lane in range(WARP):
                other, exists = self.lane_of_warp(lanes, np.full(len(lanes), lane))
                bits |= np.where(exists & self.active[other], 1 << lane, 0).astype(np.uint32)
            return bits
        value = np.broadcast_to(self.value(expr.args[1]), lanes.shape)
        shift = self.value(expr.args[2]).astype(int)
        width = int(self.scalar(expr.args[3]))
        own = self.thread % WARP
        wanted = {
            "tvm_warp_shuffle_down": own + shift,
            "tvm_warp_shuffle_up": own - shift,
            "tvm_warp_shuffle": own // width * width + shift % width,
        }[name]
        wanted = np.where(wanted // width == own // width, wanted, own)
        other, exists = self.lane_of_warp(lanes, wanted)
        poison = np.full(1, 255, np.uint8).repeat(value.dtype.itemsize).view(value.dtype)
        return np.where(exists & self.active[other], value[other], poison)

    def lane_of_warp(self, lanes: np.ndarray, wanted: np.ndarray) -> tuple[Any, Any]:
        """The lanes at position `wanted` of the warps of `lanes`, and whether they exist."""
        other = lanes - self.thread % WARP + wanted
        inside = np.where((other >= 0) & (other < len(lanes)), other, lanes)
        return inside, (self.block[inside] == self.block[lanes]) & (inside == other)


def _dtype(name: str) -> np.dtype:
    """The dtype of an element; for a vector, too."""
    element = name.partition("x")[0]
    return np.dtype(ml_dtypes.bfloat16 if element == "bfloat16" else element)


def _aligned(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two values; if one is a vector, a scalar is repeated."""
    if a.ndim == b.ndim:
        return a, b
    return (a[:, None], b) if a.ndim == 1 else (a, b[:, None])


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / b if a.dtype.kind not in "iu" else np.trunc(a.astype(float) / b).astype(a.dtype)


def _by_element(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(function, otypes=[float])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


_BINARY: dict[type, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: _divide,
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
}

_STATEMENTS: dict[type, Callable[[_Machine, Any], None]] = {
    tirx.SeqStmt: _Machine.sequence,
    tirx.Bind: _Machine.bind,
    tirx.DeclBuffer: _Machine.declare,
    tirx.AllocBuffer: _Machine.allocate,
    tirx.AttrStmt: _Machine.attribute,
    tirx.For: _Machine.loop,
    tirx.While: _Machine.while_,
    tirx.IfThenElse: _Machine.branch,
    tirx.Evaluate: _Machine.evaluate,
    tirx.BufferStore: _Machine.store,
}

_EXPRESSIONS: dict[type, Callable[[_Machine, Any], np.ndarray]] = {
    tvm.ir.TensorLoad: _Machine.load,
    tirx.And: _Machine.both,
    tirx.Or: _Machine.either,
    tirx.BitwiseNot: lambda machine, expr: ~machine.value(expr.a),
    tirx.Not: lambda machine, expr: ~machine.value(expr.a).astype(bool),
    tirx.Select: lambda machine, expr: machine.choose(
        expr.condition, expr.true_value, expr.false_value
    ),
    tirx.Cast: _Machine.cast,
    tirx.Ramp: _Machine.ramp,
    tirx.Broadcast: _Machine.broadcast,
    tirx.Let: _Machine.let,
    tvm.ir.Call: _Machine.call,
}

# CUDA's functions from the bits of a number to the number.
_FROM_BITS = ("__short_as_half", "__short_as_bfloat16", "__int_as_float", "__longlong_as_double")

_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("sqrt", "tanh", "sin", "cos", "tan", "sinh", "cosh")},
    **{
        name: getattr(np, name)
        for name in ("copysign", "fabs", "floor", "ceil", "trunc", "isnan", "isinf")
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh")},
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "erf": _by_element(math.erf),
    "round": np.rint,
    "nearbyint": np.rint,
    "pow": np.power,
    "fmod": np.fmod,
    "likely": lambda x: x,
    "reinterpret": lambda x: x,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.bitwise_not,
}

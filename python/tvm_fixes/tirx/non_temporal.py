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
"""Tensors that no cache holds: fetched ahead of their use, and stored past the caches."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.sym import Analyzer
from tvm.target.codegen import target_has_features
from tvm.tirx.buffer import BufferType
from tvm_ffi import structural_mutate, structural_walk

from .loop_nest import analyzer_of, offset_of, sequence, sources, steps_of, substitute, uses
from .transform.lower_elementary_functions import is_elementary_function
from .util import contains, count_of, is_zero

# From so many bytes on the first elements of a result are gone from the caches when the last one
# is written, and whoever reads it next has to get them from memory anyway.
_PAST_CACHES = 1 << 25

# With less to store until the next fence, waiting for that takes longer than what is won.
_LEAST_PART = 1 << 13

# A store of a part of a line must be followed at once by one of the next part.
_CACHE_LINE = 64

# TVM stores booleans, bfloat16 and narrower floats as integers, which it decides on later.
_NUMBERS = ("float16", "float32", "float64", "int", "uint")

# What LLVM's prefetch is told: to read, soon, data.
_TO_READ = (0, 3, 1)

# The note that LLVM's stores have to carry.
_PAST = "!0 = !{i32 1}\n"


def stream(stmt: tirx.Stmt, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.Stmt:
    """Store the vectors of large results to memory, without reading what was there before.

    Before::

        for i in T.parallel(4096):
            for k in range(256):
                for lane in T.vectorized(16):
                    y[i, k * 16 + lane] = x[i, k * 16 + lane] * T.float32(2)

    and after::

        for i in T.parallel(4096, annotations={"pragma_import_llvm": …}):
            for k in range(256):
                for lane in T.vectorized(16):
                    line[lane] = x[i, k * 16 + lane] * T.float32(2)
                to = T.address_of(y[i, k * 16])
                T.call_extern("void", "tvm_fixes_stream64", to, T.address_of(line[0]))
            T.call_llvm_intrin("void", "llvm.x86.sse.sfence")

    ``tvm_fixes_stream64`` is one instruction, written in LLVM's language: TVM has no other way to
    ask for it.
    Where elementary functions are computed of a row that has been read before, as in softmax, the
    next row is fetched at the same time.

    Parameters
    ----------
    stmt : tirx.Stmt
        Scheduled: it is looked for parallel loops.
    function : tirx.PrimFunc
        Of which it is, or becomes, a part.  Results that are read again are not stored so.
    target : tvm.target.Target
        Nothing is done for targets other than LLVM's; and results are stored so by x86 alone.

    Returns
    -------
    tirx.Stmt
        The same where no tensor is large, and where vectors do not lie on the lines of a cache.
    """
    tensors = [p for p in function.params if isinstance(p.ty, BufferType)]
    large = [tensor for tensor in tensors if _bytes(tensor) >= _PAST_CACHES]
    if not large or target.kind.name != "llvm":
        return stmt
    results: list[tirx.Var] = []
    if target_has_features("sse2", target):
        read = sources(function.body)
        results = [tensor for tensor in large if _is_plain(tensor) and tensor not in read]

    def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.PARALLEL:
            return mutator.default_mutate(loop)
        return _Iterations.of(loop, large, results).streamed()

    return structural_mutate(stmt, (tirx.For, rewrite))


@dataclass(frozen=True)
class _Iterations:
    """The iterations of a parallel loop, and what of them goes to memory and comes from there.

    Attributes
    ----------
    loop : tirx.For
    analyzer : Analyzer
        Knows the extents of all loops in it.
    results : list of tirx.Var
        Are to be stored past the caches.
    read_again : list of tirx.Var
        The large tensors that more than one step of an iteration reads.
    sizes : set of int
        Filled in with the sizes of the vectors that are stored so, in bytes.
    """

    loop: tirx.For
    analyzer: Analyzer
    results: list[tirx.Var]
    read_again: list[tirx.Var]
    sizes: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls, loop: tirx.For, large: Collection[tirx.Var], results: Collection[tirx.Var]
    ) -> "_Iterations":
        count = loop.extent.value if isinstance(loop.extent, tirx.IntImm) else None
        loops: list[tirx.For] = []
        structural_walk(loop, (tirx.For, loops.append))
        steps = [sources(inner) for inner in loops if inner.kind == tirx.ForKind.VECTORIZED]
        readers = Counter(buffer for step in steps for buffer in step)
        return cls(
            loop,
            analyzer_of(loops),
            [r for r in results if count is not None and _bytes(r) >= _LEAST_PART * count],
            [buffer for buffer in large if readers[buffer] > 1],
        )

    def streamed(self) -> tirx.For:
        """The loop with its results stored past the caches, and what it reads fetched ahead."""
        around = [self.loop]

        def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
            if loop.kind == tirx.ForKind.VECTORIZED:
                return self._vector(loop, around[-1])
            around.append(loop)
            new = mutator.default_mutate(loop)
            around.pop()
            return new

        loop, body = self.loop, structural_mutate(self.loop.body, (tirx.For, rewrite))
        if body.same_as(loop.body):
            return loop
        annotations = dict(loop.annotations)
        if self.sizes:
            # Those who read it next must find it there: such stores are in no order with others.
            body = tirx.SeqStmt([body, _intrinsic("llvm.x86.sse.sfence")])
            code = _PAST + "".join(_code(size) for size in sorted(self.sizes))
            annotations["pragma_import_llvm"] = tvm.ir.StringImm(code)
        var, start, extent = loop.loop_var, loop.min, loop.extent
        return tirx.For(var, start, extent, loop.kind, body, annotations=annotations)

    def _vector(self, lanes: tirx.For, outer: tirx.For) -> tirx.Stmt:
        """What is done for a vector, by a loop over its lanes."""
        store = lanes.body
        if not isinstance(store, tirx.BufferStore):
            return lanes
        if store.buffer not in self.results:
            return sequence([lanes, *self._fetches(lanes, store.value)])
        if not self._fills_lines(lanes, store, outer):
            return lanes
        size = lanes.extent.value * _item(store.buffer)
        self.sizes.add(size)
        return _past_caches(lanes, store, size)

    def _fetches(self, lanes: tirx.For, value: tirx.Expr) -> list[tirx.Stmt]:
        """What fetches for the next iteration what this one reads for a vector of `value`.

        Memory waits while elementary functions are computed of what has been read before.
        """
        if not contains(value, tvm.ir.Call, is_elementary_function):
            return []
        var = self.loop.loop_var
        last = self.loop.min + self.loop.extent - 1
        next_one = {var: tirx.min(var + 1, last)}
        found: list[tirx.Stmt] = []

        def look(load: tvm.ir.TensorLoad) -> None:
            if load.source in self.read_again and uses(load, [var]):
                address = tirx.address_of(substitute(_at_first(lanes, load), next_one))
                found.append(_intrinsic("llvm.prefetch", address, *_TO_READ))

        structural_walk(value, (tvm.ir.TensorLoad, look))
        return found

    def _fills_lines(self, lanes: tirx.For, store: tirx.BufferStore, outer: tirx.For) -> bool:
        """Whether a vector is a line, or one and the next ones of the `outer` loop are."""
        count = lanes.extent.value
        access = tirx.BufferLoad(store.buffer, store.indices)
        steps = steps_of(access, [lanes.loop_var, outer.loop_var], self.analyzer)
        if steps is None or not self.analyzer.can_prove_equal(steps[0], 1):
            return False
        offset = self.analyzer.modular_set(offset_of(_at_first(lanes, access)))
        if offset.coeff % count or offset.base % count:
            return False
        if count * _item(store.buffer) == _CACHE_LINE:
            return True
        stores: list[tirx.BufferStore] = []
        structural_walk(outer.body, (tirx.BufferStore, stores.append))
        is_alone = sum(other.buffer in self.results for other in stores) == 1
        return is_alone and bool(self.analyzer.can_prove_equal(steps[1], count))


def _past_caches(lanes: tirx.For, store: tirx.BufferStore, size: int) -> tirx.Stmt:
    """The vector of `size` bytes that a loop over lanes stores, stored past the caches."""
    result, lane = store.buffer, lanes.loop_var
    line = tirx.decl_buffer([lanes.extent], str(result.dtype), "line", layout=None)
    in_line = tirx.BufferStore(line, store.value, [lane])
    fill = tirx.For(lane, lanes.min, lanes.extent, lanes.kind, in_line)
    first = _at_first(lanes, tirx.BufferLoad(result, store.indices))
    addresses = [tirx.address_of(first), tirx.address_of(tirx.BufferLoad(line, [lanes.min]))]
    call = tirx.Evaluate(tirx.call_extern("void", _name(size), *addresses))
    known = {buffer: buffer for buffer in (result, *sources(store.value))}
    undescribed = SBlock([], [], [], "stream", lanes)
    reads, writes, _ = get_sblock_access_region(undescribed, known)
    body = tirx.SeqStmt([fill, call])
    return SBlockRealize([], True, SBlock([], reads, writes, "stream", body, alloc_buffers=[line]))


def _at_first(lanes: tirx.For, access: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
    return substitute(access, {lanes.loop_var: lanes.min})


def _intrinsic(name: str, *arguments: tirx.Expr | int) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", name, *arguments))


def _name(size: int) -> str:
    return f"tvm_fixes_stream{size}"


def _code(size: int) -> str:
    """What stores `size` bytes past the caches, in LLVM's language."""
    vector = f"<{size} x i8>"
    return f"""
define void @{_name(size)}(ptr %to, ptr %from) {{
  %vector = load {vector}, ptr %from, align {size}
  store {vector} %vector, ptr %to, align {size}, !nontemporal !0
  ret void
}}
"""


def _is_plain(buffer: tirx.Var) -> bool:
    """Whether a buffer holds numbers as they are, from the beginning of a line on."""
    is_number = str(buffer.dtype).startswith(_NUMBERS)
    return is_number and is_zero(buffer.elem_offset) and buffer.data_alignment >= _CACHE_LINE


def _item(buffer: tirx.Var) -> int:
    return int(tvm.DataType(str(buffer.dtype)).bits) // 8


def _bytes(buffer: tirx.Var) -> int:
    """How many bytes a buffer has; 0 where that is not known."""
    count = count_of(buffer.shape)
    return count.value * _item(buffer) if isinstance(count, tirx.IntImm) else 0

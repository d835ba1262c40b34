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
"""Non-temporal stores and prefetches for tensors larger than the last-level cache."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.analysis import get_sblock_access_region
from tvm.sym import Analyzer
from tvm.tirx.buffer import BufferType
from tvm_ffi import structural_mutate, structural_walk

from ..target.cpu import Cpu, has_feature
from .loop_nest import analyzer_of, offset_of, sequence, sources, steps_of, substitute, uses
from .transform.lower_elementary_functions import applies_functions
from .util import bytes_of, is_zero, item_bytes_of

# With fewer bytes per fence, waiting for the fence costs more than the stores save.
_MIN_BYTES_PER_FENCE = 1 << 13

# TVM stores booleans, bfloat16 and narrower floats as integers, which later passes choose.
_NUMBERS = ("float16", "float32", "float64", "int", "uint")

# The arguments of LLVM's prefetch: for a read, into all caches, of data.
_TO_READ = (0, 3, 1)

# The metadata node that LLVM requires for a non-temporal store.
_METADATA = "!0 = !{i32 1}\n"


def use_non_temporal_stores(
    stmt: tirx.Stmt, function: tirx.PrimFunc, target: tvm.target.Target
) -> tirx.Stmt:
    """Write large results with non-temporal stores, which bypass the caches.

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

    ``tvm_fixes_stream64`` is one instruction, written in LLVM IR: TVM has no other way to emit it.

    If a result is larger than the last-level cache, its first elements are evicted before the last
    ones are written, so the next reader waits for memory anyway.

    While a kernel computes elementary functions of a row that it has already read, as in softmax,
    it prefetches the next row.

    Parameters
    ----------
    stmt : tirx.Stmt
        A scheduled statement, whose parallel loops are rewritten.
    function : tirx.PrimFunc
        The function that contains `stmt`, or will.  Results that it also reads are stored as usual.
    target : tvm.target.Target
        Only LLVM's targets are supported, and non-temporal stores only on x86.

    Returns
    -------
    tirx.Stmt
        `stmt` itself if no tensor is large, or if vectors do not fill cache lines.
    """
    tensors = [p for p in function.params if isinstance(p.ty, BufferType)]
    cpu = Cpu.of(target)
    large = [tensor for tensor in tensors if bytes_of(tensor) >= cpu.last_level_cache_bytes]
    if not large or target.kind.name != "llvm":
        return stmt
    results: list[tirx.Var] = []
    if has_feature("sse2", target):
        read = sources(function.body)
        line = cpu.cache_line_bytes
        results = [
            tensor for tensor in large if _is_aligned_number(tensor, line) and tensor not in read
        ]

    def rewrite(loop: tirx.For, mutator: tvm_ffi.structural.StructuralMutator) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.PARALLEL:
            return mutator.default_mutate(loop)
        return _Iterations.of(loop, large, results, cpu.cache_line_bytes).rewritten()

    return structural_mutate(stmt, (tirx.For, rewrite))


@dataclass(frozen=True)
class _Iterations:
    """The iterations of a parallel loop, and the tensors that they store and fetch.

    Attributes
    ----------
    loop : tirx.For
    analyzer : Analyzer
        Knows the extents of all loops in it.
    results : list of tirx.Var
        The tensors to write with non-temporal stores.
    read_again : list of tirx.Var
        The large tensors that more than one step of an iteration reads.
    cache_line_bytes : int
    sizes : set of int
        The sizes in bytes of the non-temporal stores, added by :meth:`rewritten`.
    """

    loop: tirx.For
    analyzer: Analyzer
    results: list[tirx.Var]
    read_again: list[tirx.Var]
    cache_line_bytes: int
    sizes: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        loop: tirx.For,
        large: Collection[tirx.Var],
        results: Collection[tirx.Var],
        cache_line_bytes: int,
    ) -> "_Iterations":
        count = loop.extent.value if isinstance(loop.extent, tirx.IntImm) else None
        loops: list[tirx.For] = []
        structural_walk(loop, (tirx.For, loops.append))
        steps = [sources(inner) for inner in loops if inner.kind == tirx.ForKind.VECTORIZED]
        readers = Counter(buffer for step in steps for buffer in step)
        return cls(
            loop,
            analyzer_of(loops),
            [
                r
                for r in results
                if count is not None and bytes_of(r) >= _MIN_BYTES_PER_FENCE * count
            ],
            [buffer for buffer in large if readers[buffer] > 1],
            cache_line_bytes,
        )

    def rewritten(self) -> tirx.For:
        """The loop with non-temporal stores and prefetches."""
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
            # Non-temporal stores are not ordered with others: readers must wait for them.
            body = tirx.SeqStmt([body, _intrinsic("llvm.x86.sse.sfence")])
            code = _METADATA + "".join(_store_function(size) for size in sorted(self.sizes))
            annotations["pragma_import_llvm"] = tvm.ir.StringImm(code)
        var, start, extent = loop.loop_var, loop.min, loop.extent
        return tirx.For(var, start, extent, loop.kind, body, annotations=annotations)

    def _vector(self, lanes: tirx.For, outer: tirx.For) -> tirx.Stmt:
        """Rewrite a loop over the lanes of a vector."""
        store = lanes.body
        if not isinstance(store, tirx.BufferStore):
            return lanes
        if store.buffer not in self.results:
            return sequence([lanes, *self._fetches(lanes, store.value)])
        if not self._fills_lines(lanes, store, outer):
            return lanes
        size = lanes.extent.value * item_bytes_of(store.buffer)
        self.sizes.add(size)
        return _non_temporal_store(lanes, store, size)

    def _fetches(self, lanes: tirx.For, value: tirx.Expr) -> list[tirx.Stmt]:
        """Prefetch the elements that the next iteration reads for a vector of `value`.

        Memory is idle while elementary functions are computed from values that are already read.
        """
        if not applies_functions(value):
            return []
        var = self.loop.loop_var
        last = self.loop.min + self.loop.extent - 1
        next_one = {var: tirx.min(var + 1, last)}
        prefetches: list[tirx.Stmt] = []

        def look(load: tvm.ir.TensorLoad) -> None:
            if load.source in self.read_again and uses(load, [var]):
                address = tirx.address_of(substitute(_at_first(lanes, load), next_one))
                prefetches.append(_intrinsic("llvm.prefetch", address, *_TO_READ))

        structural_walk(value, (tvm.ir.TensorLoad, look))
        return prefetches

    def _fills_lines(self, lanes: tirx.For, store: tirx.BufferStore, outer: tirx.For) -> bool:
        """Whether a vector fills a cache line, by itself or with the next ones of the `outer` loop.

        A store to part of a line must be followed at once by a store to the next part.
        """
        count = lanes.extent.value
        access = tirx.BufferLoad(store.buffer, store.indices)
        steps = steps_of(access, [lanes.loop_var, outer.loop_var], self.analyzer)
        if steps is None or not self.analyzer.can_prove_equal(steps[0], 1):
            return False
        offset = self.analyzer.modular_set(offset_of(_at_first(lanes, access)))
        if offset.coeff % count or offset.base % count:
            return False
        if count * item_bytes_of(store.buffer) == self.cache_line_bytes:
            return True
        stores: list[tirx.BufferStore] = []
        structural_walk(outer.body, (tirx.BufferStore, stores.append))
        is_alone = sum(other.buffer in self.results for other in stores) == 1
        return is_alone and bool(self.analyzer.can_prove_equal(steps[1], count))


def _non_temporal_store(lanes: tirx.For, store: tirx.BufferStore, size: int) -> tirx.Stmt:
    """Make the store of a loop over lanes, a vector of `size` bytes, non-temporal."""
    result, lane = store.buffer, lanes.loop_var
    line = tirx.decl_buffer([lanes.extent], str(result.dtype), "line", layout=None)
    in_line = tirx.BufferStore(line, store.value, [lane])
    fill = tirx.For(lane, lanes.min, lanes.extent, lanes.kind, in_line)
    first = _at_first(lanes, tirx.BufferLoad(result, store.indices))
    addresses = [tirx.address_of(first), tirx.address_of(tirx.BufferLoad(line, [lanes.min]))]
    call = tirx.Evaluate(tirx.call_extern("void", _store_name(size), *addresses))
    known = {buffer: buffer for buffer in (result, *sources(store.value))}
    undescribed = SBlock([], [], [], "stream", lanes)
    reads, writes, _ = get_sblock_access_region(undescribed, known)
    body = tirx.SeqStmt([fill, call])
    return SBlockRealize([], True, SBlock([], reads, writes, "stream", body, alloc_buffers=[line]))


def _at_first(lanes: tirx.For, access: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
    return substitute(access, {lanes.loop_var: lanes.min})


def _intrinsic(name: str, *arguments: tirx.Expr | int) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", name, *arguments))


def _store_name(size: int) -> str:
    return f"tvm_fixes_stream{size}"


def _store_function(size: int) -> str:
    """LLVM IR of a function that makes a non-temporal store of `size` bytes."""
    vector = f"<{size} x i8>"
    return f"""
define void @{_store_name(size)}(ptr %to, ptr %from) {{
  %vector = load {vector}, ptr %from, align {size}
  store {vector} %vector, ptr %to, align {size}, !nontemporal !0
  ret void
}}
"""


def _is_aligned_number(buffer: tirx.Var, alignment: int) -> bool:
    """Whether a buffer starts at a multiple of `alignment`, and TVM stores its numbers as is."""
    is_number = str(buffer.dtype).startswith(_NUMBERS)
    return is_number and is_zero(buffer.elem_offset) and buffer.data_alignment >= alignment

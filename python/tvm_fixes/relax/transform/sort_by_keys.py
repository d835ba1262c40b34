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
"""SortByKeys: sort by integer keys that have the order of the data.

Trigger
    ``relax.sort``, ``argsort`` and ``topk`` of bfloat16, of floating-point data with a NaN, or of
    integers other than int32 and int64; for a GPU, of an empty tensor; for a CPU, of any data.
Mechanism
    TVM's runtime function reads bfloat16 as integers, and does not implement most integer dtypes.
    That function and the GPU kernels compare with ``<``, which is not an order if there is a NaN.
    The function compares pairs through pointers, so it takes 10 times as long as a radix sort.
    These kernels divide an index by the number of lines.
"""

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...fixes.elements import SORT_BY_KEYS as FIX_ID
from ...target.cpu import is_cpu
from ...tirx.util import count_of, is_zero
from ..guard import fix_pass
from ..ir import relax_functions
from ..legalize.argsort import Rows, argsort_rows, first_of_rows, selects
from ..legalize.targets import target_of

_OPERATORS = ("relax.sort", "relax.argsort", "relax.topk")

_KEYS = ("int32", "int64")

_KEY_DTYPES = {
    **dict.fromkeys(("float16", "bfloat16", "float32"), "int32"),
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("float64", "uint32", "uint64"), "int64"),
}


def SortByKeys() -> tvm.transform.Pass:
    """Sort floats, and integer dtypes that TVM does not sort, by integer keys in the same order.

    Before::

        values = R.sort(x, axis=-1)

    and after::

        keys = R.call_tir(cls.sort_keys, (x,), ...)
        indices = R.argsort(keys, axis=-1)
        values = R.gather_elements(x, indices, axis=-1)

    NaN is greater than all numbers, as in PyTorch and NumPy, and equal elements keep their order.
    For a CPU, a kernel sorts the keys, also those of int32 and int64, in linear time.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  Run it before ``DispatchSortScan``.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        sorting = _Sorting(mod)
        for variable, function in relax_functions(mod).items():
            new = sorting.visit_expr(function)
            if sorting.is_changed:
                sorting.builder_.update_func(variable, new)
        if not sorting.is_changed:
            return None
        return sorting.builder_.get()

    return fix_pass("SortByKeys", FIX_ID, rewrite)


@mutator
class _Sorting(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.is_changed = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name not in _OPERATORS:
            return call
        data, attrs = call.args[0], call.attrs
        is_known = isinstance(data.ty.shape, relax.ShapeExpr)
        if is_known and any(map(is_zero, data.ty.shape)):
            self.is_changed = True
            return self._without_elements(call.ty)
        limit = data.ty.shape.values[int(attrs.axis)] if is_known and data.ty.ndim else None
        is_topk = call.op.name == "relax.topk"
        if is_topk and isinstance(limit, tirx.IntImm) and attrs.k > limit.value:
            # Type inference limits k to the extent of the axis, but TVM's kernel does not.
            self.is_changed = True
            kept = [attrs.axis, attrs.ret_type, attrs.largest, attrs.dtype]
            call = self.builder_.normalize(relax.op.topk(data, int(limit.value), *kept))
            attrs = call.attrs
        dtype, on_cpu = str(data.ty.dtype), is_known and is_cpu(target_of(data))
        if not is_known or (dtype not in _KEY_DTYPES and not (on_cpu and dtype in _KEYS)):
            return call
        if on_cpu and dtype not in _KEY_DTYPES and is_topk and not _sorts(call, dtype):
            return call
        self.is_changed = True
        keys = data
        if dtype in _KEY_DTYPES:
            keys = self.builder_.emit(
                self.builder_.call_te(sort_keys, data, primfunc_name_hint="sort_keys")
            )
        return self._first(call, keys) if is_topk else self._sorted(call, keys)

    def _sorted(self, call: relax.Call, keys: relax.Expr) -> relax.Expr:
        """The ``sort`` or ``argsort`` of data with these keys."""
        data, attrs = call.args[0], call.attrs
        is_argsort = call.op.name == "relax.argsort"
        dtype = str(attrs.dtype) if is_argsort else "int64"
        if is_cpu(target_of(data)) and dtype in _KEYS:
            indices = self._along_rows(keys, attrs.axis, argsort_rows(attrs.descending, dtype))
        else:
            indices = relax.op.argsort(keys, attrs.axis, attrs.descending, dtype)
        if is_argsort:
            return indices
        return self._elements(data, self.builder_.emit(indices), attrs.axis)

    def _first(self, call: relax.Call, keys: relax.Expr) -> relax.Expr:
        """The ``topk`` of data with these keys."""
        emit, data, attrs = self.builder_.emit, call.args[0], call.attrs
        is_index = attrs.ret_type != "values"
        dtype = str(attrs.dtype) if is_index else "int64"
        key = str(keys.ty.dtype)
        if is_cpu(target_of(data)) and dtype in _KEYS and _sorts(call, key):
            is_whole = int(attrs.k) < 1
            if key == "int32" and not is_whole:
                kernel = first_of_rows(int(attrs.k), attrs.largest, dtype)
                indices = emit(self._along_rows(keys, attrs.axis, kernel))
            else:
                kernel = argsort_rows(attrs.largest, dtype)
                indices = emit(self._along_rows(keys, attrs.axis, kernel))
                if not is_whole:
                    indices = emit(relax.op.strided_slice(indices, [attrs.axis], [0], [attrs.k]))
        else:
            indices = emit(
                relax.op.topk(keys, attrs.k, attrs.axis, "indices", attrs.largest, dtype)
            )
        if attrs.ret_type == "indices":
            return indices
        values = self._elements(data, indices, attrs.axis)
        return relax.Tuple([emit(values), indices]) if is_index else values

    def _along_rows(self, keys: relax.Expr, axis: int, kernel: Rows) -> relax.Expr:
        """Apply a kernel of rows along any axis."""
        emit, rank = self.builder_.emit, keys.ty.ndim
        order = [place for place in range(rank) if place != int(axis) % rank]
        order.append(int(axis) % rank)
        is_last = order == list(range(rank))
        moved = keys if is_last else emit(relax.op.permute_dims(keys, order))
        *others, length = moved.ty.shape.values
        rows = emit(relax.op.reshape(moved, (count_of(others), length)))
        result = emit(self.builder_.call_te(kernel, rows, primfunc_name_hint="argsort"))
        result = relax.op.reshape(result, (*others, result.ty.shape.values[1]))
        if is_last:
            return result
        return relax.op.permute_dims(emit(result), [order.index(place) for place in range(rank)])

    def _without_elements(self, ty: tvm.ir.Type) -> relax.Expr:
        if isinstance(ty, relax.TupleType):
            return relax.Tuple([self.builder_.emit(self._without_elements(f)) for f in ty.fields])
        return relax.op.zeros(ty.shape, str(ty.dtype))

    def _elements(self, data: relax.Expr, indices: relax.Expr, axis: int) -> relax.Expr:
        if str(indices.ty.dtype) not in ("int32", "int64"):
            indices = self.builder_.emit(relax.op.astype(indices, "int64"))
        return relax.op.gather_elements(data, indices, int(axis) % data.ty.ndim)


def _sorts(call: relax.Call, key: str) -> bool:
    """Whether a ``topk`` on a CPU is faster by sorting keys of this dtype."""
    length = call.args[0].ty.shape.values[int(call.attrs.axis)]
    if not isinstance(length, tirx.IntImm):
        return False
    # For TVM, a topk of fewer than one element has all elements.
    count = int(call.attrs.k)
    # Keys of 64 bits are sorted as a whole, which takes twice as long.
    return count < 1 or selects(count, int(length.value) * (1 if key == "int32" else 8))


def sort_keys(data: te.Tensor) -> te.Tensor:
    """Compute int32 or int64 sort keys that have the order of `data`.

    Equal elements have equal keys, and the key of a NaN is the largest one.
    """
    dtype = str(data.dtype)
    key = _KEY_DTYPES[dtype]

    def element(*at: tirx.Var) -> tirx.Expr:
        value = data(*at)
        if dtype == "uint64":
            return tirx.reinterpret(key, value ^ tirx.const(1 << 63, dtype))
        if "float" not in dtype:
            return value.astype(key)
        widened = value if dtype in ("float32", "float64") else value.astype("float32")
        bits = tirx.reinterpret(key, widened)
        greatest, zero = tirx.max_value(key), tirx.const(0, key)
        # The bits of a negative number, except the sign, are ordered by magnitude: invert them.
        signed = tirx.Select(bits < zero, bits ^ greatest, bits)
        is_zero = widened == tirx.const(0, widened.ty)  # of either sign
        return tirx.Select(tirx.isnan(widened), greatest, tirx.Select(is_zero, zero, signed))

    return te.compute(data.shape, element, name="sort_keys")

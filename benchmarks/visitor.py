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
"""The time to count operator calls of a large function: native visitor against TVM's in Python."""

from collections import Counter

import tvm
from tvm import relax

from tvm_fixes import _ffi

from .measure import Comparison, compare

BINDINGS = 100_000
MAX_SHARE = 1 / 20
"""The maximum time of the native visitor, as a share of the Python visitor's time."""


def chain(length: int) -> relax.Function:
    """Return a function of `length` bindings, each a relu of the previous one."""
    relu = tvm.ir.Op.get("relax.nn.relu")
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    bindings, value = [], x
    for index in range(length):
        var = relax.Var(f"v{index}", x.ty)
        bindings.append(relax.VarBinding(var, tvm.ir.Call(relu, [value], ret_ty=x.ty)))
        value = var
    return relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], value), x.ty)


@relax.expr_functor.visitor
class PythonCounter(relax.PyExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def visit_call_(self, call: relax.Call) -> None:
        self.counts[call.op.name] += 1
        for arg in call.args:
            self.visit_expr(arg)


def comparisons(length: int = BINDINGS) -> list[Comparison]:
    """Compare both visitors on a function of `length` bindings.

    Raises
    ------
    RuntimeError
        If the counts differ.
    """
    function = chain(length)
    native = _ffi.get("tvm_fixes.analysis.CountOperators")

    def in_python() -> dict[str, int]:
        counter = PythonCounter()
        counter.visit_expr(function)
        return dict(counter.counts)

    counts = {str(name): int(count) for name, count in native(function).items()}
    if counts != in_python():
        raise RuntimeError(f"the visitors disagree: {counts} and {in_python()}")
    implementations = {"relax.PyExprVisitor": in_python, "native visitor": lambda: native(function)}
    return [compare(f"visit {length:,} bindings", implementations, runs=7)]


def check(comparison: Comparison) -> None:
    """Check that the native visitor is fast enough.

    Raises
    ------
    RuntimeError
        If it takes more than :data:`MAX_SHARE` of the Python visitor's time.
    """
    python, native = comparison.implementations
    ratio = comparison.ratio(native)
    if ratio > MAX_SHARE:
        raise RuntimeError(
            f"{comparison.title}: {native.name} takes {ratio:.3g} of the time of {python.name}, "
            f"more than {MAX_SHARE:.3g}"
        )

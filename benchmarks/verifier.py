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
"""The verifier's time on large modules, compared with TVM's well-formed check, and its growth."""

import tvm
from tvm import relax

from tvm_fixes import _ffi

from .measure import Comparison, compare

KINDS = ("static", "symbolic", "call_tir")
BINDINGS = 100_000
MAX_SHARE = 1 / 3
"""The maximum time of the verifier, as a share of the well-formed check's time."""
GROWTH = 10
"""The ratio of the two lengths that are compared."""
MAX_GROWTH = 2 * GROWTH
"""The maximum ratio of their times: above linear, because of caches, but far below quadratic."""


def chain(kind: str, length: int) -> tvm.IRModule:
    """Return a module whose ``main`` is a dataflow block of `length` dependent bindings.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`: additions of tensors with static or symbolic shapes, or legalized
        additions with static shapes.
    length : int
        The number of bindings.

    Notes
    -----
    The bindings are in a dataflow block because TVM's check of call_tir takes quadratic time
    elsewhere.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
    extent = tvm.tirx.Var("n", "int64") if kind == "symbolic" else 4
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((extent, 4), "float32"))
    if kind == "call_tir":
        add = builder.add_func(relax.transform.LegalizeOps()(chain("static", 1))["add"], "add")
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(length):
                if kind == "call_tir":
                    call = relax.call_tir(add, (value, x), x.ty)
                else:
                    call = relax.op.add(value, x)
                value = builder.emit(call)
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def comparisons(length: int = BINDINGS) -> list[Comparison]:
    """Compare both checks on each kind of function, and the verifier on two lengths of each.

    Raises
    ------
    RuntimeError
        If one of the checks rejects the module.
    """
    native = _ffi.get("tvm_fixes.analysis.Verify")
    comparisons = []
    for kind in KINDS:
        mod, shorter = chain(kind, length), chain(kind, length // GROWTH)
        if native(mod) or not relax.analysis.check_well_formed(mod):
            raise RuntimeError(f"the {kind} chain is rejected")
        implementations = {
            "relax.analysis.well_formed": lambda mod=mod: relax.analysis.well_formed(mod),
            "verify": lambda mod=mod: native(mod),
        }
        comparisons.append(compare(f"verify {length:,} bindings, {kind}", implementations, runs=9))
        implementations = {
            f"verify {size:,}": lambda mod=mod: native(mod)
            for size, mod in ((length // GROWTH, shorter), (length, mod))
        }
        comparisons.append(compare(f"growth of verify, {kind}", implementations, runs=9))
    return comparisons


def check(comparison: Comparison) -> None:
    """Check that the verifier is faster than TVM's check, and that its time grows linearly.

    Raises
    ------
    RuntimeError
        If the second implementation takes more than :data:`MAX_SHARE` of the first one's time, or,
        in a comparison of two lengths, more than :data:`MAX_GROWTH` times the first one's time.
    """
    first, second = comparison.implementations
    limit = MAX_GROWTH if comparison.title.startswith("growth") else MAX_SHARE
    ratio = comparison.ratio(second)
    if ratio > limit:
        raise RuntimeError(
            f"{comparison.title}: {second.name} takes {ratio:.3g} times as long as {first.name}, "
            f"more than {limit:.3g}"
        )

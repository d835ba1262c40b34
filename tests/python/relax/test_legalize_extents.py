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

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

import tvm_fixes  # noqa: F401  puts the lowerings in force
from helpers.relax_modules import build, call, cpu, merge, tensor

op = relax.op

CASES = {
    "gather_nd": (
        lambda x, i: op.gather_nd(x, i, batch_dims=1),
        ((2, 3), (50, 1)),
        "indices has extent 50 along axis 0; expected 2",
    ),
    "scatter_elements": (
        lambda x, i, u: op.scatter_elements(x, i, u),
        ((4,), (50,), (2,)),
        "updates has extent 2 along axis 0; expected 50",
    ),
    "index_put": (
        lambda x, i, u: op.index_put(x, relax.Tuple([i]), u),
        ((4,), (3,), (2,)),
        "values has extent 2 along axis 0; expected 3",
    ),
    "reverse_sequence": (
        lambda x, i: op.reverse_sequence(x, i, seq_axis=1, batch_axis=0),
        ((100, 4), (1,)),
        "lengths has extent 1 along axis 0; expected 100",
    ),
}


def types_of(shapes, index):
    names = dict(zip("xiu", shapes, strict=False))
    return {k: tensor(*s, dtype=index if k == "i" else "float32") for k, s in names.items()}


def symbolic(shapes):
    """`shapes` with an unknown in the place of each first extent."""
    return [(tirx.Var(f"n{place}", "int64"), *own[1:]) for place, own in enumerate(shapes)]


def arrays_of(shapes, index):
    dtypes = ("float32", index, "float32")
    return [np.ones(own, dtype) for own, dtype in zip(shapes, dtypes, strict=False)]


@pytest.mark.parametrize("name", ["gather_nd", "index_put"])
def test_extents_that_are_known_to_differ_are_rejected(name):
    emit, shapes, message = CASES[name]
    mod = build(types_of(shapes, "int64"), lambda _, *args: emit(*args))
    with pytest.raises(Exception, match=message), tvm.target.Target("llvm"):
        relax.transform.LegalizeOps()(mod)


@pytest.mark.parametrize("index", ["int8", "int16", "int64"])
def test_extents_that_differ_at_run_time_are_an_error(index):
    # The other operators take only wider indices.
    names = CASES if index == "int64" else ("scatter_elements", "index_put")
    cases = {name: CASES[name] for name in names}
    mods = {
        name: build(types_of(symbolic(shapes), index), lambda _, *args, emit=emit: emit(*args))
        for name, (emit, shapes, _) in cases.items()
    }
    vm = relax.VirtualMachine(relax.build(merge(mods), cpu()), tvm.cpu())
    for name, (_, shapes, message) in cases.items():
        with pytest.raises(Exception, match=message):
            call(vm, name, *arrays_of(shapes, index))
        same = [(3, *own[1:]) for own in shapes]
        assert len(call(vm, name, *arrays_of(same, index))) == 3


def test_values_of_one_element_are_repeated_at_run_time():
    emit, shapes, _ = CASES["index_put"]
    mod = build(types_of(symbolic(shapes), "int64"), lambda _, *args: emit(*args))
    vm = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
    x, u = np.zeros(5, "float32"), np.full(1, 7, "float32")
    assert call(vm, "main", x, np.array([0, 3, -1]), u).tolist() == [7, 0, 0, 7, 7]


def test_operands_for_a_gpu_are_read_within_their_extents():
    for name in ("scatter_elements", "index_put", "reverse_sequence"):
        emit, shapes, _ = CASES[name]
        mod = build(types_of(symbolic(shapes), "int64"), lambda _, *args, emit=emit: emit(*args))
        with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
            lowered = relax.transform.LegalizeOps()(mod)
        assert "T.min(" in str(lowered["fitted"])
        assert all("check_extents" not in var.name_hint for var in lowered.get_global_vars())


if __name__ == "__main__":
    tvm.testing.main()

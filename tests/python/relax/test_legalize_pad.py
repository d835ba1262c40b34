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

import tvm_fixes  # noqa: F401  (puts the lowerings in force)
from helpers.relax_modules import build, call, cpu, merge, tensor

op = relax.op
n, m = (tirx.Var(name, "int64") for name in "nm")
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
def test_paddings_wider_than_the_axis(mode):
    widths = [(0, 0), (7, 3), (1, 0)]
    sizes = [(2, 4, 3), (1, 3, 1), (2, 2, 2), (1, 1, 1)]
    flat = [width for pair in widths for width in pair]
    mods = {"symbolic": build({"x": tensor(2, n, m)}, lambda _, x: op.nn.pad(x, flat, mode))}
    for at, size in enumerate(sizes):
        types = {"x": tensor(2, *size[1:])}
        mods[f"static{at}"] = build(types, lambda _, x: op.nn.pad(x, flat, mode))
    executable = relax.build(merge(mods), cpu(), relax_pipeline="default")
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for at, size in enumerate(sizes):
        x = np.random.default_rng(0).standard_normal((2, *size[1:])).astype("float32")
        wanted = np.pad(x, widths, MODES[mode])
        np.testing.assert_array_equal(call(vm, "symbolic", x), wanted)
        np.testing.assert_array_equal(call(vm, f"static{at}", x), wanted)
    nothing = call(vm, "symbolic", np.zeros((2, 0, 3), "float32"))
    np.testing.assert_array_equal(nothing, np.zeros((2, 10, 4)))


def test_other_axes_without_elements():
    mod = build({"x": tensor(2, 0, 3)}, lambda _, x: op.nn.pad(x, [0, 0, 0, 0, 2, 1], "circular"))
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="default"), tvm.cpu())
    assert call(vm, "main", np.zeros((2, 0, 3), "float32")).shape == (2, 0, 6)


if __name__ == "__main__":
    tvm.testing.main()

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
"""Each pass at several places of TVM's pipeline: right, or rejected in one sentence."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers import grids
from helpers.relax_modules import build, tensor
from tests.fuzz import import_passes
from tests.fuzz.import_passes import check
from tests.fuzz.stock_server import pipeline
from tvm_fixes import transform

pytestmark = pytest.mark.native

op = relax.op
NAMES = [step.info.name for step in pipeline([]).passes]
# Before anything, between legalization and fusion, before calls become instructions, before memory
# is planned, after it, and at the end.
PLACES = [0, *map(NAMES.index, ("FoldConstant", "ToNonDataflow", "CallTIRRewrite")), len(NAMES)]
PLACES.insert(4, NAMES.index("LowerAllocTensor"))


class Exact:
    """The outputs of one call."""

    def __init__(self, *arrays):
        self.arrays = arrays

    def difference(self, got):
        try:
            for one, other in zip(got, self.arrays, strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
        except (AssertionError, ValueError) as error:
            return str(error)
        return None


def image(num_input):
    """A convolution, a permute and its inverse, a product with a transposed weight, a reshape."""

    def emit(builder, x, kernel, weight):
        x = builder.emit(op.nn.relu(op.nn.conv2d(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]), kernel)))
        x = builder.emit(op.permute_dims(op.nn.softmax(x, 1), [0, 2, 3, 1]))
        x = builder.emit(op.permute_dims(op.multiply(x, relax.const(2.0)), [0, 3, 1, 2]))
        x = builder.emit(op.matmul(op.reshape(x, (2, 16)), op.permute_dims(weight)))
        return op.nn.layer_norm(x, op.sum(weight, 1), op.max(weight, 1), axes=-1)

    inputs = {"x": tensor(1, 2, 4, 4), "kernel": tensor(2, 2, 3, 3), "weight": tensor(5, 16)}
    mod = build(inputs, emit)
    return mod if num_input is None else with_num_input(mod, num_input)


def with_num_input(mod, number):
    return tvm.IRModule({"main": mod["main"].with_attr("num_input", number)})


def rows():
    """Symbolic rows, taken, scattered, sorted and summed up."""
    n = tirx.Var("n", "int64")

    def emit(builder, x, at):
        taken = builder.emit(op.take(x, at, 0))
        total = builder.emit(op.cumsum(op.sort(taken, 1), 0))
        updated = builder.emit(op.scatter_elements(x, op.zeros((n, 4), "int64"), total, axis=0))
        flat = builder.emit(op.reshape(updated, (n * 4,)))
        return op.concat([op.einsum([x, total], "ij,kj->ik"), op.reshape(flat, (n, 4))], 1)

    return build({"x": tensor(n, 4), "at": relax.TensorType([n], "int64")}, emit)


def draw(*shapes):
    random = np.random.default_rng(0)
    return [random.uniform(-1, 1, shape).astype("float32") for shape in shapes]


MODELS = {
    "image": (lambda: image(None), draw((1, 2, 4, 4), (2, 2, 3, 3), (5, 16))),
    "weights": (lambda: image(1), draw((1, 2, 4, 4), (2, 2, 3, 3), (5, 16))),
    "rows": (rows, [*draw((3, 4)), np.array([2, 0, -1], "int64")]),
}
WEIGHTS = import_passes._TAKES_WEIGHTS


@pytest.fixture(scope="module")
def results():
    """The outputs of each model, from TVM's pipeline without passes between its own."""
    outputs = {}
    for name, (make, inputs) in MODELS.items():
        vm = relax.VirtualMachine(relax.build(make(), "llvm"), tvm.cpu())
        outputs[name] = Exact(vm["main"](*map(tvm.runtime.tensor, inputs)).numpy())
    return outputs


@pytest.mark.parametrize("pass_name", grids.sample(transform.__all__, 16))
def test_pass_alone(pass_name, results):
    """A pass is right at every place, or its rejection names it."""
    model = "weights" if pass_name in WEIGHTS else ("image", "rows")[len(pass_name) % 2]
    make, inputs = MODELS[model]
    rejections = [
        check(make(), [], [(place, pass_name)], [inputs], [results[model]])
        for place in grids.sample(PLACES, 1, transform.__all__.index(pass_name))
    ]
    named = [text for text in rejections if text]
    assert all(pass_name in text.partition(": ")[2] for text in named), named


def test_kernels_beside_a_scan(results):
    """The buffers of a scan have variable offsets; FuseTIR lost the extent of zeros beside it."""
    make, inputs = MODELS["rows"]
    assert not check(make(), [], [(10, "MergeSmallKernels")], [inputs], [results["rows"]])


if __name__ == "__main__":
    tvm.testing.main()

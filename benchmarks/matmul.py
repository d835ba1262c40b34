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
"""Matrix products of transformers: PyTorch, TVM's lowering and ours, on one thread."""

import functools
import os

import numpy as np
import torch
import tvm
from tvm import relax

from tvm_fixes import pipeline, switches
from tvm_fixes.target import resolve

from .measure import Comparison, compare

# The weights of a linear layer are constant; attention multiplies two activations.
LINEAR = [
    ((rows, depth), (depth, columns))
    for depth, columns in ((128, 512), (768, 3072), (3072, 768))
    for rows in (1, 32, 197)
]
ATTENTION = [((12, 197, 64), (12, 64, 197)), ((12, 197, 197), (12, 197, 64))]


def comparisons() -> list[Comparison]:
    """One table a product."""
    torch.set_num_threads(1)
    os.environ["TVM_NUM_THREADS"] = "1"
    return [
        _compare(*shapes, constant) for constant in (True, False) for shapes in _cases(constant)
    ]


def _cases(constant: bool) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return LINEAR if constant else ATTENTION


def _build(lhs: np.ndarray, rhs: np.ndarray, constant: bool) -> relax.VirtualMachine:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(lhs.shape, "float32"))
    other = relax.Var("y", relax.TensorType(rhs.shape, "float32"))
    with builder.function("main", [x] if constant else [x, other]):
        with builder.dataflow():
            product = relax.op.matmul(x, relax.const(rhs) if constant else other)
            out = builder.emit_output(product)
        builder.emit_func_output(out)
    executable = relax.build(builder.get(), resolve("native"), relax_pipeline=pipeline())
    return relax.VirtualMachine(executable, tvm.cpu())


def _compare(lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...], constant: bool) -> Comparison:
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.standard_normal(shape, "float32") for shape in (lhs_shape, rhs_shape))
    # A linear layer of PyTorch holds its weight transposed.
    in_torch = torch.from_numpy(rhs).mT.contiguous().mT if constant else torch.from_numpy(rhs)
    multiply = functools.partial(torch.matmul, torch.from_numpy(lhs), in_torch)
    ways = {"PyTorch": multiply}
    for name, disabled in (("TVM", "matmul-legalize"), ("tvm-fixes", "")):
        os.environ[switches.ENVIRONMENT_VARIABLE] = disabled
        vm = _build(lhs, rhs, constant)
        arguments = [tvm.runtime.tensor(array) for array in ([lhs] if constant else [lhs, rhs])]
        np.testing.assert_allclose(
            vm["main"](*arguments).numpy(), multiply().numpy(), rtol=1e-3, atol=1e-3, err_msg=name
        )
        ways[name] = functools.partial(vm["main"], *arguments)
    title = f"{'linear' if constant else 'batched'} {lhs_shape} x {rhs_shape}"
    return compare(title, ways, runs=5)

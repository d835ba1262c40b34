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
"""Stand-ins for cuBLAS and cuDNN, which compute with NumPy and PyTorch on a CPU.

They take the arguments of the functions in ``src/cuda_libraries``, so that the passes that call
these are tested without a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import tvm
from torch.nn import functional
from tvm_ffi import register_global_func, remove_global_func

TARGET = tvm.target.Target(
    {"kind": "cuda", "arch": "sm_90", "libs": ["cublas", "cudnn"]}, host={"kind": "llvm"}
)
"""A GPU with both libraries."""


@contextmanager
def stand_ins() -> Iterator[list[str]]:
    """Register both functions within the block; the list has the name of each call."""
    called: list[str] = []
    functions = {"cublas_matmul": _matmul, "cudnn_convolution": _convolution}

    def packed(name, function):
        def run(*args):
            called.append(name)
            *operands, options, out, workspace = args
            assert workspace.dtype == "uint8"
            arrays, shape = [x.numpy() for x in operands], tuple(out.shape)
            result = function(arrays, list(map(int, options)), shape)
            assert result.shape == shape, (name, result.shape, shape)
            out.copyfrom(result.astype(str(out.dtype)))

        return run

    for name, function in functions.items():
        register_global_func(f"tvm_fixes_{name}", packed(name, function), override=True)
    try:
        yield called
    finally:
        for name in functions:
            remove_global_func(f"tvm_fixes_{name}")


def _matmul(operands: list[np.ndarray], options: list[int], _shape: object) -> np.ndarray:
    lhs, rhs, *bias = operands
    transposes_lhs, transposes_rhs = options
    lhs = lhs.swapaxes(-1, -2) if transposes_lhs else lhs
    out = lhs @ (rhs.swapaxes(-1, -2) if transposes_rhs else rhs)
    return out + bias[0] if bias else out


def _convolution(
    operands: list[np.ndarray], options: list[int], shape: tuple[int, ...]
) -> np.ndarray:
    data, weight = map(torch.from_numpy, operands)
    is_transposed, has_channels_last, groups, *window = options
    rank = data.ndim - 2
    padding, stride, dilation = (window[i * rank : (i + 1) * rank] for i in range(3))
    if has_channels_last:
        data, weight = data.movedim(-1, 1), weight.movedim(-1, 1)
    if is_transposed:
        convolve = getattr(functional, f"conv_transpose{rank}d")
        # Only the shape of the result tells the output padding.
        wanted = shape[1:-1] if has_channels_last else shape[2:]
        spans = zip(
            data.shape[2:], weight.shape[2:], stride, padding, dilation, wanted, strict=True
        )
        extra = [w - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for n, k, s, p, d, w in spans]
        out = convolve(data, weight, None, stride, padding, extra, groups, dilation)
    else:
        convolve = getattr(functional, f"conv{rank}d")
        out = convolve(data, weight, None, stride, padding, dilation, groups)
    return (out.movedim(1, -1) if has_channels_last else out).contiguous().numpy()

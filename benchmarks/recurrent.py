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
"""Recurrent layers of ONNX models against ONNX Runtime, in CPU time of one thread.

The number of steps and of sequences is symbolic in half of the models.
"""

import io
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import tvm
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn
from tvm import relax

from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve

from .measure import Comparison, compare

_Prepare = Callable[[np.ndarray], Callable[[], Any]]
"""Makes a function that runs a model on an input, and returns its output."""

MAX_RATIO = 1.2
"""The maximum time, as a multiple of ONNX Runtime's."""

_MAX_ERROR = 1e-4
_RUNS = 41
_SIZES = (64, 128, 256, 512)


class _Outputs(nn.Module):
    """A recurrent layer that returns only the outputs of all steps."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def model_of(layer: nn.RNNBase, *, is_symbolic: bool, is_quantized: bool) -> onnx.ModelProto:
    """An ONNX model of a layer, of 100 steps of one sequence or symbolic in both."""
    axes = {"x": {0: "steps", 1: "batch"}} if is_symbolic else {}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Outputs(layer).eval(),
            (torch.zeros(100, 1, layer.input_size),),
            file,
            input_names=["x"],
            dynamic_axes=axes,
            dynamo=False,
        )
    model = onnx.load_from_string(file.getvalue())
    if not is_quantized:
        return model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        quantize_dynamic(path, Path(folder) / "quantized.onnx", weight_type=QuantType.QInt8)
        return onnx.load(Path(folder) / "quantized.onnx")


def comparisons() -> Iterator[Comparison]:
    """Compare each layer for one or several lengths and batches."""
    torch.manual_seed(0)
    for size in _SIZES:
        for kind in (nn.LSTM, nn.GRU):
            yield from _compare(kind(size, size), f"{kind.__name__} {size}")
        yield from _compare(nn.LSTM(size, size), f"DynamicQuantizeLSTM {size}", is_quantized=True)
    yield from _compare(nn.LSTM(128, 128), "LSTM 128", [(1, 1), (400, 1)])
    both = nn.LSTM(512, 256, num_layers=2, bidirectional=True)
    yield from _compare(both, "two bidirectional LSTM 256", [(40, 1), (40, 4)])


def _compare(
    layer: nn.RNNBase,
    title: str,
    sizes: list[tuple[int, int]] | None = None,
    *,
    is_quantized: bool = False,
) -> Iterator[Comparison]:
    for is_symbolic in (False, True):
        model = model_of(layer, is_symbolic=is_symbolic, is_quantized=is_quantized)
        chosen = (sizes or [(25, 1), (100, 1), (100, 8)]) if is_symbolic else [(100, 1)]
        ours, theirs = _ours(model), _onnx_runtime(model)
        for steps, batch in chosen:
            x = np.random.default_rng(0).normal(size=(steps, batch, layer.input_size))
            prepared = [prepare(x.astype("float32")) for prepare in (theirs, ours)]
            outputs = [run() for run in prepared]
            # Rounding decides about single steps of a quantized batch.
            limit = 1e-2 if is_quantized else _MAX_ERROR
            if not np.abs(outputs[0] - outputs[1].numpy()).max() < limit:
                raise RuntimeError(f"{title}: the outputs differ")
            kind = "symbolic" if is_symbolic else "static"
            yield compare(
                f"{title}, {steps} steps, batch {batch}, {kind}",
                dict(zip(("ONNX Runtime", "tvm-fixes"), prepared, strict=True)),
                runs=_RUNS,
                clock=time.process_time,
            )


def _ours(model: onnx.ModelProto) -> _Prepare:
    executable = relax.build(from_onnx(model), resolve("native"), relax_pipeline=pipeline())
    function = relax.VirtualMachine(executable, tvm.cpu())["main"]
    return lambda x: partial(function, tvm.runtime.tensor(x))


def _onnx_runtime(model: onnx.ModelProto) -> _Prepare:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda x: lambda: session.run(None, {"x": x})[0]


def check(comparison: Comparison) -> None:
    """Raise an error if a layer takes too long."""
    _, ours = comparison.implementations
    if comparison.ratio(ours) > MAX_RATIO:
        ratio = f"{comparison.ratio(ours):.2f}"
        raise RuntimeError(f"{comparison.title}: {ratio} of ONNX Runtime's time, at most 1.2")

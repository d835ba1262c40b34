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
"""Quantize ONNX models with ONNX Runtime: to 8 bits per channel, or weights only, in blocks."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from examples.export import only_errors

_TYPES: dict[str, Any] = {"per_channel": True, "weight_type": quantization.QuantType.QInt8}


class _Inputs(quantization.CalibrationDataReader):
    """Yields the inputs of one run."""

    def __init__(self, inputs: Mapping[str, np.ndarray]):
        self._pending: Iterator[dict[str, np.ndarray]] = iter([dict(inputs)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._pending, None)


def static(model: onnx.ModelProto, *inputs: np.ndarray) -> onnx.ModelProto:
    """Quantize weights and activations, in QDQ form.

    Parameters
    ----------
    model : onnx.ModelProto
        A float32 model of less than 2 GiB.
    *inputs : numpy.ndarray
        Its inputs, in order; the activations of a run with them determine the scales.

    Returns
    -------
    onnx.ModelProto
        The quantized model.
    """
    names = (value.name for value in model.graph.input)
    with TemporaryDirectory() as folder, only_errors():
        path = Path(folder, "quantized.onnx")
        quantization.quantize_static(
            model,
            path,
            _Inputs(dict(zip(names, inputs, strict=True))),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            **_TYPES,
        )
        return onnx.load(path)


def dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """Quantize weights; the quantized model chooses the scales of activations.

    Parameters
    ----------
    model : onnx.ModelProto
        A float32 model of less than 2 GiB, which loses its ``value_info``.

    Returns
    -------
    onnx.ModelProto
        The quantized model.
    """
    # The quantizer transposes weights and keeps their declared shapes.
    del model.graph.value_info[:]
    with TemporaryDirectory() as folder, only_errors():
        path = Path(folder, "quantized.onnx")
        quantization.quantize_dynamic(model, path, **_TYPES)
        return onnx.load(path)


def weights(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """Quantize only the weights of matrix products, in blocks of 32.

    Parameters
    ----------
    model : onnx.ModelProto
        A float32 model of less than 2 GiB.
    bits : int
        4 or 8.

    Returns
    -------
    onnx.ModelProto
        The model with operators MatMulNBits.
    """
    with only_errors():
        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=32, is_symmetric=True)
        quantizer.process()
    return quantizer.model.model


def output_step(model: onnx.ModelProto) -> float:
    """The scale of the first output, if a constant scale dequantizes it; else 0."""
    output = model.graph.output[0].name
    [node] = [node for node in model.graph.node if output in node.output]
    if node.op_type != "DequantizeLinear":
        return 0.0
    scales = [t for t in model.graph.initializer if t.name == node.input[1]]
    return float(onnx.numpy_helper.to_array(scales[0])) if scales else 0.0

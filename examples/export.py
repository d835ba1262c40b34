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
"""Export from PyTorch to ONNX, in the form that TVM imports best."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch

# The first opset whose GroupNormalization has one weight per channel.  For lower opsets, the
# exporter writes Reshape, InstanceNormalization, Reshape, which works only channels-first.
OPSET = 21


def to_onnx(program: torch.export.ExportedProgram) -> onnx.ModelProto:
    """Export a program to ONNX.

    The exporter's own optimization stays on: it folds constants and merges BatchNorm into the
    preceding convolution.  TVM converts the remaining operators without loss.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        A model in eval mode, from ``torch.export.export``.

    Returns
    -------
    onnx.ModelProto
        The model with its weights, for ``tvm_fixes.compile`` or ``onnx.save``.
    """
    # The exporter warns if torchvision is missing, and about PyTorch's own internals.  onnx_ir
    # reports each value at the level that ONNX Runtime's quantizer sets for all loggers.
    with (
        only_errors("torch.onnx"),
        only_errors("onnx_ir"),
        only_errors("onnxscript"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert exported is not None  # it is None only if the exporter writes a file
    return exported.model_proto


@contextmanager
def only_errors(name: str | None = None) -> Iterator[None]:
    """Hide the warnings of a logger, by default the root logger, within the block."""
    logger = logging.getLogger(name)
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        yield
    finally:
        logger.setLevel(level)

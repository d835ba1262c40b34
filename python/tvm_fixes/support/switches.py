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
"""The switches of the fixes: which are known, and which ``TVM_FIXES_DISABLE`` turns off."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

FIX_IDS: tuple[str, ...] = (
    "conv-transpose-legalize",
    "conv-transpose-infer-layout",
    "conv-transpose-output-padding",
    "conv-legalize",
    "fold-pad-into-conv",
    "conv-infer-layout",
    "matmul-legalize",
    "pixel-shuffle-legalize",
    "rms-norm-legalize",
    "norm-variance",
    "reduction-legalize",
    "softmax-legalize",
    "pool-window",
    "average-pool",
    "pool-ceil-mode",
    "resize-legalize",
    "reshape-legalize",
    "inline-elementwise",
    "reduction-schedule",
    "elementwise-schedule",
    "decompose-reduction",
    "elementary-functions",
    "float-arithmetic",
    "integer-division",
    "long-loops",
    "slp-vectorizer",
    "gpu-schedule",
    "sort-by-keys",
    "split-dataflow",
    "comparison-legalize",
    "arithmetic-legalize",
    "creation-legalize",
    "strided-slice-legalize",
    "index-legalize",
    "layout-transform-legalize",
    "reshape-infer-layout",
    "permute-dims-infer-layout",
    "squeeze-infer-layout",
    "operators-infer-layout",
    "layout-guards",
    "decompose-channelwise",
    "choose-layout",
    "prepare-layout",
    "fold-layout-into-conv",
    "fuse-transpose-matmul",
    "plan-memory-if",
    "plan-memory-escape",
    "vm-shape-lower-weights",
    "empty-constants",
    "batch-norm-legalize",
    "torch-dtype",
    "torch-conv-transpose",
    "torch-batch-norm",
    "torch-instance-norm",
    "torch-interpolate",
    "torch-fx-pad",
    "torch-tile",
    "torch-prelu",
    "torch-linear",
    "torch-promotion",
    "torch-dynamic-shapes",
    "torch-attention",
    "torch-indexing",
    "torch-activations",
    "torch-pooling",
    "torch-grid-sample",
    "torch-reductions",
    "torch-creation",
    "torch-decompositions",
    "onnx-conv-transpose-output-shape",
    "onnx-conv-auto-pad",
    "onnx-dtype",
    "onnx-pad",
    "onnx-prelu",
    "onnx-recurrent",
    "onnx-resize",
    "onnx-slice",
    "onnx-reshape",
    "onnx-expand",
    "onnx-parameters",
    "onnx-unnamed-dims",
    "onnx-shape-values",
    "onnx-if",
    "onnx-loops",
    "onnx-functions",
    "onnx-elementwise",
    "onnx-activations",
    "onnx-reductions",
    "onnx-norms",
    "onnx-pooling",
    "onnx-boxes",
    "onnx-quantized",
    "dynamic-to-static",
    "broadcast-free-matmul",
    "fold-constant",
    "lift-transform-params",
    "lifted-params",
    "verify-types",
    "verify-functions",
    "verify-call-tir",
    "verify-operators",
    "verify-attributes",
    "verify-prim-func",
    "verifier",
    "runtime-checks",
    "ffi-0.1.15",
)

ENVIRONMENT_VARIABLE = "TVM_FIXES_DISABLE"


def disabled() -> frozenset[str]:
    """The fixes that ``TVM_FIXES_DISABLE`` (ids separated by commas) turns off at this moment.

    Returns
    -------
    frozenset of str
        A subset of :data:`FIX_IDS`.

    Raises
    ------
    ValueError
        If the variable holds an id that no fix has; the message lists the known ones.
    """
    ids = frozenset(
        part for raw in os.environ.get(ENVIRONMENT_VARIABLE, "").split(",") if (part := raw.strip())
    )
    unknown = sorted(ids.difference(FIX_IDS))
    if unknown:
        raise ValueError(
            f"{ENVIRONMENT_VARIABLE}: unknown fix {', '.join(map(repr, unknown))}; "
            f"known fixes: {', '.join(FIX_IDS)}"
        )
    return ids


def enabled(fix_id: str) -> bool:
    """Whether the fix `fix_id` is in force.

    Raises
    ------
    ValueError
        If `fix_id`, or an id in ``TVM_FIXES_DISABLE``, is unknown.
    """
    if fix_id not in FIX_IDS:
        raise ValueError(f"unknown fix {fix_id!r}; known fixes: {', '.join(FIX_IDS)}")
    return fix_id not in disabled()


_collected: ContextVar[set[str] | None] = ContextVar("tvm_fixes_collected", default=None)


def note(fix_id: str) -> None:
    """Record that the fix `fix_id` has acted in place of TVM's own code."""
    collected = _collected.get()
    if collected is not None:
        collected.add(fix_id)


@contextmanager
def collect() -> Iterator[set[str]]:
    """Collect the ids of the fixes that act within the ``with`` block.

    Yields
    ------
    set of str
        Grows while the block runs.
    """
    collected: set[str] = set()
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)

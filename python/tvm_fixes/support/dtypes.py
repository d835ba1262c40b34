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
"""Properties of dtypes."""


def accumulation_dtype(dtype: str) -> str:
    """The dtype in which PyTorch and ONNX Runtime compute sums, products and convolutions.

    For 16-bit floating-point operands, they compute products, sum, scaling and bias in float32,
    and round once, at the end.  (On CPUs without 16-bit instructions, a few float16 kernels of
    PyTorch, such as transposed convolutions, round more often and are less accurate.)

    Parameters
    ----------
    dtype : str
        The dtype of the operands.

    Returns
    -------
    str
        ``"float32"`` for ``"float16"`` and ``"bfloat16"``, else `dtype`.
    """
    return "float32" if dtype in ("float16", "bfloat16") else dtype

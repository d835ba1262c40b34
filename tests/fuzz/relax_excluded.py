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
"""Calls that are not compared, each with the reason; a line goes when its fault is gone."""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from .relax_oracle import EXCLUDED, FLOATS, Tensor, Value, flat

# What takes the larger of two numbers loses a NaN.
_LOSE_NAN = {
    "relax.nn.relu",
    "relax.nn.relu6",
    "relax.nn.leakyrelu",
    "relax.nn.selu",
    "relax.nn.prelu",
    "relax.clip",
    "relax.maximum",
    "relax.minimum",
    "relax.max",
    "relax.min",
    "relax.argmax",
    "relax.argmin",
    "relax.sort",
    "relax.argsort",
    "relax.topk",
    "relax.nn.max_pool1d",
    "relax.nn.max_pool2d",
    "relax.nn.max_pool3d",
    "relax.nn.softmax",
    "relax.nn.log_softmax",
    "relax.scatter_elements",
    "relax.scatter_nd",
    "relax.sign",
}
# exp of a large number is infinite within what is finite itself.
_OVERFLOW = {
    "relax.log_add_exp",
    "relax.nn.softplus",
    "relax.sinh",
    "relax.cosh",
    "relax.asinh",
    "relax.acosh",
    "relax.nn.gelu_tanh",
    "relax.tan",
    "relax.sin",
    "relax.cos",
    "relax.power",
}


def _tensors(arguments: Sequence[Value]) -> list[Tensor]:
    return [one for value in arguments if isinstance(value, Tensor | tuple) for one in flat(value)]


def _loses_nan(call: relax.Call, arguments: Sequence[Value]) -> bool:
    name = call.op.name
    floats = [one.data for one in _tensors(arguments) if one.dtype in FLOATS]
    if name in _LOSE_NAN:
        return any(bool(np.any(np.isnan(data))) for data in floats)
    return name in _OVERFLOW and any(bool(np.any(~(np.abs(data) < 80))) for data in floats)


def _has_no_elements(call: relax.Call, arguments: Sequence[Value]) -> bool:
    """A scan over an axis of extent 0 writes behind its result."""
    name = call.op.name
    return name in ("relax.cumsum", "relax.cumprod") and arguments[0].data.size == 0


# LLVM has no such functions of half precision.
_NOT_HALF = {
    f"relax.{name}"
    for name in (
        "acos acosh asin asinh atan atanh cosh sinh tan atan2 power log_add_exp erf floor_mod mod"
    ).split()
}


def _is_not_built(call: relax.Call, arguments: Sequence[Value]) -> bool:
    halves = ("float16", "bfloat16")
    name = call.op.name
    if name in _NOT_HALF:
        return any(one.dtype in halves for one in _tensors(arguments))
    if name in ("relax.isnan", "relax.isinf", "relax.isfinite"):
        return arguments[0].dtype == "bfloat16"
    # Sorting of bfloat16 compares bits, and of the narrowest integers there is none.
    return name in ("relax.sort", "relax.argsort", "relax.topk") and any(
        one.dtype in ("bfloat16", "int8", "int16", "uint8") for one in _tensors(arguments)
    )


def _blends_infinities(call: relax.Call, arguments: Sequence[Value]) -> bool:
    """A factor of 0, of a padding too, may be left out, or make NaN of what is infinite."""
    name = call.op.name
    blends = name == "relax.image.resize2d" or name.startswith("relax.nn.conv")
    return blends and not all(np.all(np.isfinite(one.data)) for one in _tensors(arguments))


EXCLUDED.extend([_is_not_built, _blends_infinities, _loses_nan, _has_no_elements])

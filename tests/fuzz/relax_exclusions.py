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
"""Calls that are not compared, each with the reason; remove an entry when its fault is fixed."""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from .relax_oracle import EXCLUDED, Tensor, Value, flat


def _tensors(arguments: Sequence[Value]) -> list[Tensor]:
    return [one for value in arguments if isinstance(value, Tensor | tuple) for one in flat(value)]


def _blends_infinities(call: relax.Call, arguments: Sequence[Value]) -> bool:
    """A factor of 0, also from padding, may be skipped, or turn infinity into NaN."""
    name = call.op.name
    blends = name == "relax.image.resize2d" or name.startswith("relax.nn.conv")
    return blends and not all(np.all(np.isfinite(one.data)) for one in _tensors(arguments))


def _shifts_by_infinity(call: relax.Call, arguments: Sequence[Value]) -> bool:
    """Like PyTorch, TVM multiplies the mean by the scale, and may subtract infinities."""
    if call.op.name != "relax.nn.batch_norm":
        return False
    return not all(np.all(np.isfinite(one.data)) for one in _tensors(arguments[1:]))


EXCLUDED += [_blends_infinities, _shifts_by_infinity]

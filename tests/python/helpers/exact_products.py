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
"""Products of integers that are exact in float64."""

from typing import Any

import numpy as np
import torch


def exact_product(
    operator: str, data: np.ndarray, weight: np.ndarray, attributes: dict[str, Any]
) -> np.ndarray:
    """The result in float64 of a matrix product or of a convolution of ``relax.op.nn``."""
    wide, kernel = (array.astype("float64") for array in (data, weight))
    if operator == "matmul":
        return wide @ kernel
    name = operator.removesuffix("_transpose")
    if name != operator:
        name = name.replace("conv", "conv_transpose")
    names = {"strides": "stride"}
    given = {names.get(key, key): value for key, value in attributes.items()}
    if isinstance(padding := given.get("padding"), list):
        before, after = padding[: len(padding) // 2], padding[len(padding) // 2 :]
        wide = np.pad(wide, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        given["padding"] = 0
    function = getattr(torch.nn.functional, name)
    return function(torch.from_numpy(wide), torch.from_numpy(kernel), **given).numpy()

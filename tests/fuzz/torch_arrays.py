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
"""Conversions between PyTorch's tensors and NumPy's arrays, which lack bfloat16."""

import ml_dtypes
import numpy as np
import torch


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor; those of bfloat16 in the dtype of ml_dtypes."""
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return np.asarray(tensor.detach().contiguous().numpy())


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The elements of an array, which may be in ml_dtypes' bfloat16."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype("float32")).bfloat16()
    return torch.from_numpy(array)

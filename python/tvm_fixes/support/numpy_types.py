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
"""TVM's types as dtypes of NumPy arrays.

Mechanism
    NumPy took the attribute ``dtype`` of any object for a dtype.  Since 2.3, that attribute must be
    a dtype of NumPy's, and TVM's is not.  NumPy 2.4 reads ``__numpy_dtype__`` first; with 2.3,
    write ``np.zeros(4, str(x.dtype))``.
How to remove
    When TVM passes the tests of this file, delete it, its test, its call in :mod:`tvm_fixes` and
    the fix id ``numpy-dtype``.
"""

import functools

import numpy as np
from tvm.ir import PrimType

from ..fixes.environment import NUMPY_DTYPE as FIX_ID
from . import switches
from .tensors import numpy_dtype


def _numpy_dtype(self: PrimType) -> np.dtype:
    """The dtype of NumPy with the same elements."""
    if not switches.enabled(FIX_ID):
        raise AttributeError(f"{FIX_ID} is switched off")
    switches.note(FIX_ID)
    return numpy_dtype(str(self.dtype))


@functools.cache
def register() -> None:
    """Let NumPy convert TVM's types; a second call is a no-op."""
    if not hasattr(PrimType, "__numpy_dtype__"):
        PrimType.__numpy_dtype__ = property(_numpy_dtype)

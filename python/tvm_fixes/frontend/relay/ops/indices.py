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
"""Indices that a program computes, checked before a kernel reads memory with them."""

from tvm import relax

from ...extents import Extent, expression
from ..call import Call


def checked_indices(call: Call, indices: relax.Expr, extent: Extent) -> relax.Expr:
    """Return indices of an axis as int64; one outside of the axis is an error at run time."""
    rows = call.emit(relax.op.arange(expression(0), expression(extent), expression(1), "int64"))
    # The pipeline checks the indices of this operator.
    return call.emit(relax.op.take(rows, indices, 0, mode="fast"))

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
"""InsertRuntimeChecks: check at run time what the compiler cannot prove; the pass is native."""

import tvm

from ... import _ffi


def InsertRuntimeChecks() -> tvm.transform.Pass:
    """Insert runtime checks for operator preconditions that the compiler cannot prove.

    Examples are two extents that must be equal or broadcastable, the number of elements of a
    reshape, and the channels of a convolution's kernel. If a precondition that
    :func:`tvm_fixes.verify` warns about does not hold at run time, the model raises an
    ``AssertionError`` instead of reading out of bounds. Indices that are not constants are checked
    too; extents that are a ``T.if_then_else`` are not checked. The error names the variable, the
    operator, and the expected and actual values.

    Run the pass before operators are lowered to kernels; after ``LambdaLift``, because local
    functions are not checked; and after ``LiftTransformParams``, which would move checks away from
    the values they check.  A second run is a no-op.  A check is an ``R.assert_op``,
    which is implemented in apache-tvm's Python package.  A function with checks has ordinary
    (non-dataflow) binding blocks between its dataflow blocks, and gets the attribute
    ``relax.force_pure`` if it was pure.

    Returns
    -------
    tvm.transform.Pass
        A module pass. If there is nothing to check, it returns the same module object.
    """
    return _ffi.get("tvm_fixes.transform.InsertRuntimeChecks")()

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
"""Checks at run time of what cannot be proved when a model is compiled."""

import tvm

from ... import _ffi


def InsertRuntimeChecks() -> tvm.transform.Pass:
    """Check at run time what an operator asks of its operands and nothing proves.

    Two extents that are to be equal, or to broadcast, a number of elements that a reshape keeps,
    channels that a kernel has: where :func:`tvm_fixes.verify` gives a warning, the model raises an
    ``AssertionError`` in place of reading beyond a tensor.  Indices that are not constants are
    checked too; an extent such as a ``T.if_then_else`` is not.  The error names the variable, the
    operator, what is expected and what there is.

    Run it on operators, before they are lowered to kernels; after ``LambdaLift``, since local
    functions are not checked, and after ``LiftTransformParams``, which would move checks away from
    what they check.  A second run checks a second time.  The check is ``R.assert_op``, which is a
    part of apache-tvm's Python package.  A function with checks is one of plain blocks and
    dataflow blocks between them, and has the attribute ``relax.force_pure`` if it was pure.

    Returns
    -------
    tvm.transform.Pass
        A module pass. The same module comes back where there is nothing to check.
    """
    return _ffi.get("tvm_fixes.transform.InsertRuntimeChecks")()

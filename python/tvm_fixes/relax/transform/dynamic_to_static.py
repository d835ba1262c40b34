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
"""DynamicToStatic: infer shapes that a model computes with tensors; the pass is native."""

import tvm

from ... import _ffi


def DynamicToStatic() -> tvm.transform.Pass:
    """Make the shapes of a module static if they follow from the extents of its inputs.

    The pass tracks the elements of small integer and boolean tensors from operator to operator, as
    expressions over the symbolic dims of the parameters.  It assumes only that extents are not
    negative.  Before::

        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            n = T.int64()
            rows, columns = T.int64(), T.int64()
            with R.dataflow():
                shape = R.shape_to_tensor(R.shape([n, 4]))
                doubled = R.multiply(shape, R.const([2, 1], "int64"))
                target = R.tensor_to_shape(doubled)
                _ = R.match_cast(target, R.Shape([rows, columns]))
                pair = R.concat((x, x), axis=0)
                gv = R.reshape(pair, R.shape([rows, columns]))
                R.output(gv)
            return gv

    and after::

        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 2", 4), "float32"):
            n = T.int64()
            with R.dataflow():
                pair = R.concat((x, x), axis=0)
                gv = R.reshape(pair, R.shape([n * 2, 4]))
                R.output(gv)
            return gv

    1. ``shape_of`` and ``tensor_to_shape`` of a known value become an ``R.shape``, which replaces
       their variable everywhere.
    2. If a ``match_cast`` binds a symbol to a known value, that value replaces the symbol in all
       that follows: in types, in shapes, in the bounds of an ``arange``.  A check that is proved is
       removed.
    3. ``dynamic_strided_slice`` with known bounds becomes ``strided_slice``, with bounds within the
       operand.  A ``strided_slice`` whose bounds cross gets such bounds too.  The pass trusts
       ``assume_inbound`` unless it is provably false; :func:`InsertRuntimeChecks` checks it at run
       time.
    4. An ``If`` whose condition is known becomes the branch that is taken.  If the condition is not
       known and both branches return tensors of one rank, a ``match_cast`` after the ``If`` names
       the extents: the common ones, and new symbols for the others.
    5. Before a ``squeeze`` of an extent that may not be 1, a ``match_cast`` checks that it is.
    6. All later types are inferred again, including that of the function's result; unused bindings
       without effects are removed.

    A shape that is known only for some inputs stays dynamic: the pass never assumes that two
    symbols of a broadcast are equal.  If TVM rejects a call whose operand types became more
    precise, a ``match_cast`` gives the operands their old types.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for Relax functions at any stage before lowering.  If there is nothing to do,
        it returns the same module object; a second run is a no-op.

    Notes
    -----
    The pass tracks tensors of up to 256 elements.  It tracks floats only as literals, and symbolic
    values only in integers of at least 32 bits.  Like TVM for indices, it assumes that arithmetic
    on extents does not overflow.  It logs why it left something unchanged, at level ``DEBUG`` to
    Python's logger ``tvm_fixes.DynamicToStatic``.
    """
    return _ffi.get("tvm_fixes.transform.DynamicToStatic")()

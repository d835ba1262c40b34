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
"""Shapes that a model computes with tensors, made expressions over the extents of its inputs."""

import tvm

from ... import _ffi


def DynamicToStatic() -> tvm.transform.Pass:
    """Make the shapes of a module static, as far as they follow from the extents of its inputs.

    The elements of small tensors of integers and booleans are followed from operator to operator,
    as expressions over the symbols of the parameters; extents are not negative, and nothing else
    is assumed of them.  Before::

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

    1. ``shape_of`` and ``tensor_to_shape`` of what is known become a ``R.shape``, which takes the
       place of its variable everywhere.
    2. A symbol that a ``match_cast`` defines as something known is replaced by it in all that
       follows: in types, in shapes, in the bounds of an ``arange``.  A check that is proved goes.
    3. ``dynamic_strided_slice`` with known bounds becomes ``strided_slice``, with bounds within the
       operand.  So does a ``strided_slice`` whose bounds cross; ``assume_inbound`` is a promise,
       and is believed unless it is proved to be false.  :func:`InsertRuntimeChecks` checks promises
       when the model runs.
    4. An ``If`` whose condition is decided becomes the branch that is taken.  Where it is not, and
       both branches give tensors of one rank, a ``match_cast`` behind it names the extents: those
       that agree, and new symbols for the others.
    5. Before a ``squeeze`` of an extent that may not be 1, a ``match_cast`` checks that it is.
    6. Types are inferred anew from there on, also that of the result of the function; what is no
       longer read is removed, if it has no effect.

    What is known for some inputs alone stays as it is, for the run time to decide: a broadcast of
    two symbols is never taken to be one of equal extents.  A call that TVM refuses once more is
    known of its operands keeps operands of the types that they had, by a ``match_cast``.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for functions of Relax at any stage before lowering.  The same module comes
        back where there is nothing to do, so that a second run changes nothing.

    Notes
    -----
    Tensors of up to 256 elements are followed.  Floats are followed as literals only, and symbolic
    values not in integers of less than 32 bits; arithmetic on extents is taken not to overflow, as
    TVM takes that on indices.  Why something was left as it was is logged at level ``DEBUG`` to
    Python's logger ``tvm_fixes.DynamicToStatic``.
    """
    return _ffi.get("tvm_fixes.transform.DynamicToStatic")()

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
"""BundleModelParams: bundle the weights of a function into one tuple, at most once.

Mechanism
    TVM's pass bundles the weights of every function with ``num_input``; those of a transform
    function are one tuple already.
"""

import tvm
from tvm import relax

from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..analysis import weights_of
from ..guard import corrected
from ..ir import with_functions
from ..lift.callers import reject_callers

NAME = "BundleModelParams"


def BundleModelParams(param_tuple_name: str | None = None) -> tvm.transform.Pass:
    """Bundle the weights of each function with ``num_input`` into one tuple.

    TVM's pass of this name, except that it skips functions whose weights are one tuple already:
    the transform functions that prepare weights, and functions that are bundled already.

    Parameters
    ----------
    param_tuple_name : str, optional
        The name of the tuple; ``model_params`` by default.

    Returns
    -------
    tvm.transform.Pass
        A module pass.

    Raises
    ------
    UsageError
        When the pass runs: if another function of the module calls a function to be bundled.
    """
    stock = relax.transform.BundleModelParams(param_tuple_name)

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        functions = dict(mod.functions_items())
        bundled = {var: f for var, f in functions.items() if is_bundled(f)}
        changed = {
            var: f
            for var, f in functions.items()
            if isinstance(f, relax.Function)
            and "num_input" in (f.attrs or {})
            and var not in bundled
        }
        reject_callers(mod, changed, NAME)
        if not bundled:
            return stock(mod)
        switches.note(FIX_ID)
        shown = {var: f.without_attr("num_input") for var, f in bundled.items()}
        after = stock(with_functions(mod, shown))
        return with_functions(after, bundled)

    return corrected(stock, FIX_ID, run, NAME)


def is_bundled(function: tvm.ir.BaseFunc) -> bool:
    """Whether the weights of a function are one tuple."""
    if not isinstance(function, relax.Function) or "num_input" not in (function.attrs or {}):
        return False
    weights = weights_of(function)
    return len(weights) == 1 and isinstance(weights[0].ty, relax.TupleType)

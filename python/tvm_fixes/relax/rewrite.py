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
"""Run a mutator over the functions of a module."""

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

from .ir import relax_functions


def rewrite_functions(
    mutator: PyExprMutator,
    mod: tvm.IRModule,
    enter: Callable[[relax.Function], None] | None = None,
) -> tvm.IRModule:
    """The module of `mutator`, with each Relax function of `mod` as the mutator rewrites it.

    Parameters
    ----------
    mutator : PyExprMutator
        Its module may have more functions than `mod`.
    mod : tvm.IRModule
    enter : callable, optional
        Prepares the mutator to visit a function.
    """
    for global_var, function in relax_functions(mod).items():
        if enter is not None:
            enter(function)
        mutator.builder_.update_func(global_var, mutator.visit_expr(function))
    return mutator.builder_.get()

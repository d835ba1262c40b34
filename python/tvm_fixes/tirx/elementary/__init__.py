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
"""Elementary functions of float32 as expressions that LLVM vectorizes."""

from collections.abc import Callable

from tvm import tirx

from .exponential import erf, exp, sigmoid, tanh
from .logarithm import log
from .remainder import fmod, has_large_quotient
from .trigonometric import atan, atan2, cos, is_far, sin

__all__ = ["FUNCTIONS", "IS_OUTSIDE"]

FUNCTIONS: dict[str, Callable[..., tirx.Expr]] = {
    "tirx.atan": atan,
    "tirx.atan2": atan2,
    "tirx.cos": cos,
    "tirx.erf": erf,
    "tirx.exp": exp,
    "tirx.fmod": fmod,
    "tirx.log": log,
    "tirx.sigmoid": sigmoid,
    "tirx.sin": sin,
    "tirx.tanh": tanh,
}
"""The functions by the names of TVM's operators."""

IS_OUTSIDE: dict[str, Callable[..., tirx.Expr]] = {
    "tirx.cos": is_far,
    "tirx.fmod": has_large_quotient,
    "tirx.sin": is_far,
}
"""For the functions that are accurate only for some arguments: whether given ones are others."""

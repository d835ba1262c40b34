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
"""The passes on PrimFuncs, one per file.

How to remove
    When TVM passes the tests of a file, and the fix of a cost makes no difference to ``make
    bench``, delete the file, its tests, its line in :mod:`tvm_fixes.pipeline` and the fix id.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

import typing

from .apply_gpu_schedule import ApplyGpuSchedule
from .decompose_reduction import DecomposeReduction
from .guard_float_arithmetic import GuardFloatArithmetic
from .guard_float_casts import GuardFloatCasts
from .guard_integer_division import GuardIntegerDivision
from .guard_integer_overflow import GuardIntegerOverflow
from .guard_long_loops import GuardLongLoops
from .guard_shape_bounds import GuardShapeBounds
from .guard_split_indices import GuardSplitIndices
from .hoist_select_loads import HoistSelectLoads
from .inline_elementwise import InlineElementwise
from .keep_tiles_on_stack import KeepTilesOnStack
from .lower_alignment import LowerAlignment
from .lower_elementary_functions import LowerElementaryFunctions
from .schedule_elementwise import ScheduleElementwise
from .schedule_reductions import ScheduleReductions

if not typing.TYPE_CHECKING:  # mypy reads a computed __all__ as an empty one
    __all__ = [name for name in dir() if name[0].isupper()]

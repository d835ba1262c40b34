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

"""How large the constants of a compiled model are, against the parameters of its source."""

import math
from collections.abc import Sequence

import tvm

from ...errors import CompileError, UsageError
from ...support.tensors import raw_bytes
from .provenance import Origins

WARN_RATIO = 1.2
"""The ratio of constants to parameters, in bytes, above which a warning is given."""

ALLOWANCE = 256 * 1024
"""What is not counted, in bytes: padding of small matrices and tables that operators need."""

# How many constants a message lists.
_LISTED = 3


def check_ratio(max_size_ratio: float | None) -> None:
    """Make sure that `max_size_ratio` is one.

    Raises
    ------
    UsageError
        If it is not positive.
    """
    if max_size_ratio is not None and not max_size_ratio > 0:
        raise UsageError(f"max_size_ratio must be positive, got {max_size_ratio}")


def check_volume(
    tensors: Sequence[tvm.runtime.Tensor],
    origins: Origins,
    parameter_bytes: int,
    max_size_ratio: float | None,
) -> tuple[int, list[str]]:
    """Hold the size of an artifact's constants against that of the parameters.

    Parameters
    ----------
    tensors : sequence of Tensor
        The constants.
    origins : Origins
        Where they come from.
    parameter_bytes : int
        The size of the model's parameters.
    max_size_ratio : float or None
        How many times as large the constants may be, :data:`ALLOWANCE` apart; None: as large as
        they are.

    Returns
    -------
    nbytes : int
        The size of the constants.
    warnings : list of str
        One, which names the constants that are to blame, where they are more than
        :data:`WARN_RATIO` times as large.

    Raises
    ------
    CompileError
        If they are more than `max_size_ratio` times as large; it names them.
    """
    nbytes = sum(raw_bytes(tensor).size for tensor in tensors)

    def exceeds(ratio: float) -> bool:
        return nbytes > ratio * parameter_bytes + ALLOWANCE

    if not exceeds(min(WARN_RATIO, math.inf if max_size_ratio is None else max_size_ratio)):
        return nbytes, []
    grown = origins.growth(tensors)
    listed = "; ".join(
        f"{size} bytes, {adds} of them new: {o}" for adds, o, size in grown[:_LISTED]
    )
    more = f"; and {len(grown) - _LISTED} more" if len(grown) > _LISTED else ""
    times = f"{nbytes / parameter_bytes:.2f} times the" if parameter_bytes else "and the"
    found = (
        f"the constants of the artifact take {nbytes} bytes, {times} parameters' "
        f"{parameter_bytes}: {listed}{more}"
    )
    if max_size_ratio is not None and exceeds(max_size_ratio):
        raise CompileError(f"{found}; at most {max_size_ratio:g} times is asked for")
    return nbytes, [found]

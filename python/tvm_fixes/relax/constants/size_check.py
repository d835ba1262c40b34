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

"""Comparison of the size of a compiled model's constants with the size of its parameters."""

import math
from collections.abc import Sequence

import tvm

from ...errors import CompileError, UsageError
from ...support.tensors import raw_bytes
from .provenance import Origins

WARN_RATIO = 1.2
"""The ratio of constants to parameters, in bytes, above which to warn."""

ALLOWANCE = 256 * 1024
"""The bytes that do not count: padding of small matrices, and tables that operators need."""

# The number of constants that a message lists.
_LISTED = 3


def check_ratio(max_size_ratio: float | None) -> None:
    """Check that `max_size_ratio` is None or positive.

    Raises
    ------
    UsageError
        If it is not.
    """
    if max_size_ratio is not None and not max_size_ratio > 0:
        raise UsageError(f"max_size_ratio must be positive, got {max_size_ratio}")


def check_size(
    tensors: Sequence[tvm.runtime.Tensor],
    origins: Origins,
    parameter_bytes: int,
    max_size_ratio: float | None,
) -> tuple[int, list[str]]:
    """Compare the size of an artifact's constants with the size of the model's parameters.

    Parameters
    ----------
    tensors : sequence of Tensor
        The constants.
    origins : Origins
        Their provenance.
    parameter_bytes : int
        The size of the model's parameters.
    max_size_ratio : float or None
        The maximum ratio of constants to parameters, not counting :data:`ALLOWANCE`; None for no
        limit.

    Returns
    -------
    nbytes : int
        The size of the constants.
    warnings : list of str
        If the ratio exceeds :data:`WARN_RATIO`, one warning that names the constants that grew.

    Raises
    ------
    CompileError
        If the ratio exceeds `max_size_ratio`.  The message names the constants that grew.
    """
    nbytes = sum(raw_bytes(tensor).size for tensor in tensors)

    def exceeds(ratio: float) -> bool:
        return nbytes > ratio * parameter_bytes + ALLOWANCE

    if not exceeds(min(WARN_RATIO, math.inf if max_size_ratio is None else max_size_ratio)):
        return nbytes, []
    grown = origins.growth(tensors)
    listed = "; ".join(f"{size} bytes ({adds} new): {o}" for adds, o, size in grown[:_LISTED])
    more = f"; and {len(grown) - _LISTED} more" if len(grown) > _LISTED else ""
    times = f"{nbytes / parameter_bytes:.2f} times the" if parameter_bytes else "and the"
    comparison = (
        f"the constants of the artifact take {nbytes} bytes, {times} parameters' "
        f"{parameter_bytes}: {listed}{more}"
    )
    if max_size_ratio is not None and exceeds(max_size_ratio):
        raise CompileError(f"{comparison}; the limit is {max_size_ratio:g} times")
    return nbytes, [comparison]

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
"""Default limits on the growth of constants and of prepared weights."""

from ...errors import UsageError

MAX_GROWTH = 1.2
"""The maximum ratio of values computed ahead of time to the constants they replace, in bytes."""

WEIGHTS_ALLOWANCE = 64 << 10
"""The bytes that prepared weights may take beyond that ratio, so that small ones are prepared."""


def check_growth(max_growth: float) -> None:
    """Raise a UsageError if a limit is negative or not a number."""
    if not max_growth >= 0:
        raise UsageError(f"max_growth must be >= 0, got {max_growth}")

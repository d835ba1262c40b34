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
"""Factors of fixed-point products."""

import math

__all__ = ["fixed_point"]


def fixed_point(multiplier: float) -> tuple[int, int]:
    """Return a factor as (significand, exponent): significand * 2**(exponent - 31).

    The significand is in [2**30, 2**31), rounded half away from zero; 0 gives (0, 0).
    """
    if multiplier == 0.0:
        return 0, 0
    fraction, exponent = math.frexp(multiplier)
    scaled = fraction * 2.0**31
    significand = int(math.copysign(math.floor(abs(scaled) + 0.5), scaled))
    if significand == 2**31:
        return 2**30, exponent + 1
    return significand, exponent

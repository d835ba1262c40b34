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
"""Evaluation of the known parts of a program at compile time."""

from .base import Pass, native_pass


def PartialEvaluate() -> Pass:
    """Return the pass that runs functions, matches and lists that are known at compile time.

    Before, ``@map(%f, Cons(%a, Cons(%b, Nil)))`` is a recursive call. After, there are only the
    calls of ``%f`` on ``%a`` and ``%b``. The pass infers types, so that shapes are known.
    """
    return native_pass("PartialEvaluate")

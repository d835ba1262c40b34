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
"""Calls of several threads that take turns."""

import functools
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_lock = threading.RLock()


def in_turn(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run one call at a time of all the functions with this decorator; they may call each other.

    ``BlockBuilder`` keeps the functions that are being built in one list for all threads.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _lock:
            return function(*args, **kwargs)

    return call


def _in_child() -> None:
    global _lock
    # The thread that holds the lock may not exist in the child.
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)

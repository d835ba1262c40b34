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
"""Calls of a library in a process that was forked after the library ran.

The workers of TVM's thread pool belong to the thread that first ran a parallel kernel.  A fork
keeps that thread but not its workers, so its next parallel kernel would wait forever. Therefore,
calls from that thread run on a new thread, which creates its own pool.
"""

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol


class Renewable(Protocol):
    """An object whose state must be reset after a fork."""

    def _renew(self) -> None: ...


# The thread that the fork kept, and the executor that calls libraries for it.
_kept: int | None = None
_executor: ThreadPoolExecutor | None = None
_renewable: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def renew(model: Renewable) -> None:
    """Register `model` to be renewed in each child that this process forks."""
    _renewable.add(model)


def guarded(function: Callable[..., Any], *last: Any) -> Callable[..., Any]:
    """`function` with the arguments `last`; its calls run on threads whose pools have workers."""

    def call(*arguments: Any) -> Any:
        if _kept is None:  # the usual case: this process was not forked
            return function(*arguments, *last)
        return _call(function, *arguments, *last)

    return call


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    global _executor
    if threading.get_ident() != _kept:
        return function(*arguments)
    if _executor is None:
        _executor = ThreadPoolExecutor(1, "tvm-fixes")
    return _executor.submit(function, *arguments).result()


def _in_child() -> None:
    global _kept, _executor
    _kept, _executor = threading.get_ident(), None
    for model in list(_renewable):
        model._renew()


os.register_at_fork(after_in_child=_in_child)

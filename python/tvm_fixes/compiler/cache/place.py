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
"""The directory of the cache, and whether it may be used."""

import os
import re
from pathlib import Path

from ...errors import UsageError
from .files import ForeignError, warn_once
from .store import Store

VARIABLE = "TVM_FIXES_CACHE"
SIZE_VARIABLE = "TVM_FIXES_CACHE_SIZE"

DEFAULT_SIZE = 10 << 30
"""The limit of the size in bytes."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def opened() -> Store | None:
    """The cache, or None if it is off or cannot be used; the reason is logged once.

    ``TVM_FIXES_CACHE`` is ``0`` to turn it off, or its directory.  By default, it is
    ``tvm-fixes`` in ``XDG_CACHE_HOME`` or in ``~/.cache``.
    """
    directory = _directory()
    if directory is None:
        return None
    try:
        store = Store(directory, size_limit())
        store.check()
    except (OSError, UsageError) as error:
        warn_once(f"the cache of compiled models is not used: {_reason(error)}")
        return None
    return store


def existing() -> Store:
    """The cache for the commands that list and clear it.

    Raises
    ------
    UsageError
        If it is off, if there is no home directory, or if it cannot be used.
    """
    directory = _directory()
    if directory is None:
        raise UsageError(f"the cache is off: {VARIABLE}=0, or there is no home directory")
    store = Store(directory, size_limit())
    try:
        store.check()
    except OSError as error:
        raise UsageError(f"the cache cannot be used: {_reason(error)}") from error
    return store


def size_limit() -> int:
    """The limit of the size in bytes, from ``TVM_FIXES_CACHE_SIZE``, such as ``20G``.

    Raises
    ------
    UsageError
        If it is not a size.
    """
    text = os.environ.get(SIZE_VARIABLE, "").strip()
    if not text:
        return DEFAULT_SIZE
    match = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)(i?b)?", text.lower())
    if match is None:
        raise UsageError(f"{SIZE_VARIABLE}: expected a size such as 20G, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _directory() -> Path | None:
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen == "0":
        return None
    if chosen:
        return Path(os.path.abspath(chosen))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        warn_once("the cache of compiled models is not used: there is no home directory")
        return None
    return Path(base, "tvm-fixes")


def _reason(error: Exception) -> str:
    if isinstance(error, ForeignError | UsageError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)

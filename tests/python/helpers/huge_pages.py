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
"""Puts the memory of this process into huge pages.

Many tests fork, and a fork copies the table of pages: of a process that holds the modules of all
tests, this takes longer than what most children do.
"""

import ctypes
from pathlib import Path

_SIZE = 2 << 20

# Of Linux's madvise: huge pages for new memory, and for what is there.
_HUGEPAGE, _COLLAPSE = 14, 25


def use() -> None:
    """Put the private memory that is there into huge pages, where Linux can."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in maps.read_text(encoding="utf-8").splitlines():
        addresses, access, _offset, _device, inode, *_name = line.split()
        if access != "rw-p" or inode != "0":
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        begin, end = -(-begin // _SIZE) * _SIZE, end // _SIZE * _SIZE
        if begin < end:
            # An older kernel, or one without huge pages, refuses.
            madvise(begin, end - begin, _HUGEPAGE)
            madvise(begin, end - begin, _COLLAPSE)

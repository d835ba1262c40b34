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
"""Compiled libraries on disk, for later processes.

An entry is found by its key, the SHA-256 of a text of everything that its code depends on: the
model (``module_text``), and what surrounds it (``surroundings``, with the digest of the installed
code by ``installed``).  ``place`` finds the directory, ``store`` reads and writes its ``entries``,
and ``eviction`` limits its size.  Nothing here knows what a model or a graph of PyTorch is.

The directory needs no lock.  Each file has its whole content when it gets its name, and each is
checked against a SHA-256 when it is read, so whatever is damaged or missing is only a miss.
"""

from .place import opened
from .store import Found, Store, key_of
from .surroundings import surroundings

__all__ = ["Found", "Store", "key_of", "opened", "surroundings"]

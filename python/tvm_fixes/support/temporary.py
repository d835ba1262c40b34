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
"""Temporary directories that belong to an object."""

import shutil
import tempfile
from multiprocessing import util


class TemporaryDirectory:
    """A directory that is removed when this object is garbage-collected, or its process ends.

    Unlike ``tempfile.TemporaryDirectory``, it survives the end of a forked child, it is removed at
    the end of a process of ``multiprocessing`` too, and there is no ``ResourceWarning``.

    Attributes
    ----------
    name : str
        The path of the directory.
    """

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="tvm-fixes-")
        # Ignored in other processes.
        self._finalizer = util.Finalize(
            self, shutil.rmtree, (self.name,), {"ignore_errors": True}, exitpriority=0
        )

    def cleanup(self) -> None:
        """Remove the directory now."""
        self._finalizer()

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
"""The names of files with Relay programs, and their reader, which needs the library of Relay."""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import CompileError

SUFFIXES = (".relay", ".txt")
"""The suffixes of files with Relay's text; JSON is recognized by its contents."""

# A node of save_json, or of the graph executor, for which the reader raises its own error.
_OLD_NODE = re.compile(rb'"type_key"|"op":\s*"(null|tvm_op)"')

Params = Mapping[str, np.ndarray[Any, Any]] | str | os.PathLike[str]


def is_program(path: Path) -> bool:
    """Whether a ``.json`` file holds a Relay program, or another object saved by TVM up to 0.19."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    # TVM since 0.20 writes "root_index", and "type" in nodes.
    return b'"root_index"' not in head and _OLD_NODE.search(head) is not None


def is_program_name(path: str | os.PathLike[str]) -> bool:
    """Whether a name ends like those of Relay's text or of saved JSON."""
    return Path(path).suffix in (*SUFFIXES, ".json")


def reader() -> ModuleType:
    """Return the module :mod:`tvm_fixes.source.relay`.

    Raises
    ------
    CompileError
        If the library of Relay is missing or does not load.
    """
    try:
        return import_module(".relay", __package__)
    except ImportError as error:
        raise CompileError(str(error)) from error

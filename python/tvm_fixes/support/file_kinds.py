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
"""Files that are not what their names say, by their first bytes.

The command line loads this module by its path, before the package.
"""

import re

LIBRARY, TEXT, ZIP = "a library", "a text file", "a zip archive"
"""Kinds of files that some models are, or may begin like."""

# The first bytes of files that are often given for a model.
_HEADS = (
    (rb"version https://git-lfs", "a pointer of Git LFS, not the model; `git lfs pull` gets it"),
    (rb"..\0\0TFL3", "a TFLite model; its name must end in .tflite"),
    (rb"\x89HDF", "an HDF5 file, such as Keras writes; export the model to ONNX"),
    (rb"PK\x03\x04", ZIP),
    (rb"\x7fELF", LIBRARY),
    (rb"\s*<", "a page of HTML or XML, perhaps of a download that failed"),
    (rb"\Z", "empty"),
    (rb"[\t\n\r\x20-\x7e]+\Z", TEXT),
)


def kind_of(path: str) -> str:
    """The kind of a file by its first bytes; empty if they do not tell.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(64)
    kinds = (kind for pattern, kind in _HEADS if re.match(pattern, head, re.DOTALL))
    return next(kinds, "")

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
"""Writes the API pages: ``python ci/api_pages.py DIRECTORY``."""

import re
import sys
from pathlib import Path

from pdoc import docstrings, pdoc, render

MODULES = ("tvm_fixes", "tvm_fixes.errors")
"""The modules to document; ``__all__`` of the first adds its submodules."""

_stock_rst = docstrings.rst


def rst(contents: str, source_file: Path | None) -> str:
    """Extend pdoc's conversion by references that begin with ~, and literal blocks."""
    contents = re.sub(r"(:\w+:`)~", r"\1", contents)
    contents = re.sub(r"::$(?=\n\n +)", ":", contents, flags=re.MULTILINE)
    return str(_stock_rst(contents, source_file))


if __name__ == "__main__":
    docstrings.rst = rst
    render.configure(docformat="numpy")
    pdoc(*MODULES, output_directory=Path(sys.argv[1]))

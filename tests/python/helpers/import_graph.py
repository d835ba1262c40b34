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
"""Which module imports which, read from the source; nothing is imported."""

import ast
from collections.abc import Iterator
from pathlib import Path


def modules(root: Path, pattern: str) -> dict[str, Path]:
    """The file of each module below `root` by its name.

    Parameters
    ----------
    root : Path
        The folder from which the modules are imported.
    pattern : str
        The files, such as ``package/**/*.py``.
    """
    files = {}
    for path in sorted(root.glob(pattern)):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def graph(files: dict[str, Path]) -> dict[str, set[str]]:
    """The modules among `files` that each of them imports, in functions and for types, too."""
    return {module: set(_imports(module, files)) - {module} for module in files}


def _imports(module: str, files: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(files[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(node, module, files[module])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                if name in files or base in files:
                    yield name if name in files else base


def _base_of(node: ast.ImportFrom, module: str, file: Path) -> str | None:
    """The package or module that a ``from`` statement names."""
    if not node.level:
        return node.module
    package = module.split(".")
    package = package[: len(package) - node.level + (file.name == "__init__.py")]
    return ".".join([*package, *filter(None, [node.module])])

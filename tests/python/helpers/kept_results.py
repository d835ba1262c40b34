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
"""Results of long tests, kept in files so that an interrupted run can continue."""

import json
from pathlib import Path
from typing import Any


class KeptResults:
    """Results by name; without a folder, it forgets them.

    Parameters
    ----------
    folder : Path or None
        The results are in ``folder/<name>.jsonl``.
    name : str
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._file = None if folder is None else folder / f"{name}.jsonl"
        self._results: dict[str, Any] = {}
        if self._file is not None and self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines(keepends=True):
                # The last line of a killed run may be incomplete.
                if line.endswith("\n"):
                    self._results.update(json.loads(line))

    def __contains__(self, key: str) -> bool:
        return key in self._results

    def __getitem__(self, key: str) -> Any:
        return self._results[key]

    def record(self, key: str, result: Any) -> None:
        """Keep a result, which is made of lists, dicts, strings and numbers."""
        self._results[key] = result
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({key: result}) + "\n")

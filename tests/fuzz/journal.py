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
"""The results of a campaign on disk, one per line, so that an interrupted run can resume."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tvm_fixes.search.journal import append_line, read_lines

from .campaign import Result, Verdict


class Journal:
    """The file of one campaign.

    Parameters
    ----------
    path : Path
        Created with its folder if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.results = list(self._read())

    def _read(self) -> Iterator[Result]:
        for fields in read_lines(self.path):
            yield Result(**{**fields, "verdict": Verdict(fields["verdict"])})

    def add(self, result: Result) -> None:
        """Append `result`."""
        self.results.append(result)
        append_line(self.path, asdict(result))

    def next_seed(self, base: int) -> int:
        """The first seed from `base` on that has not run yet."""
        return max((result.seed + 1 for result in self.results), default=base)

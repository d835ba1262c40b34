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
"""Tables of the results on a GPU."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .cases import GPU_CASES, GROUPS

Row = dict[str, Any]

_COLUMNS = {
    "eager": "PyTorch ms",
    "compiled": "torch.compile",
    "ours": "tvm-fixes",
    "libraries": "with libraries",
    "stock": "TVM",
}


def show(rows: Sequence[Row], console: Console) -> int:
    """Print the errors and the time of each case; return 1 if there is an error, else 0."""
    faults = [row for row in rows if _is_fault(row)]
    for row in faults:
        said = row.get("failure") or row.get("crash") or f"error {row['error']:.2g}"
        limit = f" (limit {row['limit']:.2g})" if "error" in row else ""
        console.print(f"{row['case']}: {row.get('variant', '')}: {said}{limit}", markup=False)
    for group, title in GROUPS.items():
        table = _table(group, title, rows)
        if table.row_count:
            console.print(table)
    console.print(f"{_count(rows)}; {rows[0]}", markup=False)
    return 1 if any(row.get("variant") != "stock" for row in faults) else 0


def _is_fault(row: Row) -> bool:
    return "failure" in row or "crash" in row or row.get("equal") is False


def _count(rows: Iterable[Row]) -> str:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        if "limit" in row:
            counts[row["variant"]][0] += bool(row.get("equal"))
            counts[row["variant"]][1] += 1
        elif "tool" in row:
            counts[f"{row['tool']} of {row['variant']}"][0] += "failure" not in row
            counts[f"{row['tool']} of {row['variant']}"][1] += 1
    return ", ".join(f"{name}: {right} of {every} right" for name, (right, every) in counts.items())


def _table(group: str, title: str, rows: Iterable[Row]) -> Table:
    seconds: dict[str, Row] = defaultdict(dict)
    for row in rows:
        if "seconds" in row and GPU_CASES[row["case"]].group == group:
            seconds[row["case"]][row["variant"]] = row["seconds"]
    table = Table("case", *_COLUMNS.values(), title=f"{title}; ratios to PyTorch")
    for case, times in seconds.items():
        eager = times.get("eager", math.nan)
        ratios = (f"{times[name] / eager:.2f}" if name in times else "" for name in _COLUMNS)
        next(ratios)
        table.add_row(case, f"{eager * 1e3:.4f}", *ratios)
    return table

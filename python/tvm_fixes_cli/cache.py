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
"""The command ``cache``."""

import argparse
import json
import re
import time
from typing import Any

from . import terminal
from .arguments import Commands, Result, add_command
from .package import loaded
from .terminal import EQUAL, WRONG_USE, Failure

_HELP = """\
List or clear the cache of compiled models, which 'compile --cache', tvm_fixes.compile(cache=True)
and torch.compile(backend="tvm_fixes") use.

The cache is in the directory TVM_FIXES_CACHE, by default ~/.cache/tvm-fixes, and has at most
TVM_FIXES_CACHE_SIZE bytes (default: 10G). TVM_FIXES_CACHE=0 turns it off.

exit status: 0 done; 2 usage error, or the cache is off or may not be used
"""

_EXAMPLES = """\
examples:
  tvm-fixes cache list
  tvm-fixes cache clear --older-than 30d
"""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "cache",
        _run,
        help="list or clear the cache of compiled models",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument("action", choices=("list", "clear"), help="what to do")
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        type=_seconds,
        help="clear only what was not used for this time, such as 30d, 12h or 10m",
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 30d, 12h or 10m, got {text!r}")
    return float(int(match[1]) * _UNITS[match[2]])


def _run(arguments: argparse.Namespace) -> Result:
    if arguments.action == "list" and arguments.older_than is not None:
        raise Failure("--older-than is for 'cache clear'", WRONG_USE)
    with loaded(with_torch=False):
        from tvm_fixes.compiler.cache import eviction, place

        store = place.existing()
        removed = None
        if arguments.action == "clear":
            removed = eviction.clear(store, arguments.older_than or 0.0)
        entries = eviction.entries_of(store)
        found: dict[str, Any] = {"directory": str(store.root), "limit": store.limit}
        found["size"] = eviction.size_of(store)

    if removed is not None:
        found["removed"] = removed._asdict()
    else:
        found["entries"] = [
            {
                **entry.made,
                "key": entry.key,
                "used": round(entry.used),
                "size": sum(blob.size for blob in entry.blobs.values()),
            }
            for entry in entries
        ]

    def write() -> None:
        if arguments.json:
            print(json.dumps(found, indent=2))
        else:
            _write(found)

    return EQUAL, write


def _write(found: dict[str, Any]) -> None:
    if "removed" in found:
        removed = found["removed"]
        size = terminal.size_text(removed["size"])
        print(f"{found['directory']}: {removed['entries']} entries removed, {size}")
        return
    from rich.markup import escape
    from rich.table import Table

    console, now = terminal.console(), time.time()
    rows = Table("model", "made by", "found by", "target", "size", "made", "last used")
    for entry in found["entries"]:
        ages = (f"{_age(now - entry[name])} ago" for name in ("time", "used"))
        words = (entry[name] for name in ("source", "by", "kind", "target"))
        rows.add_row(*map(escape, words), terminal.size_text(entry["size"]), *ages)
    if found["entries"]:
        console.print(rows, highlight=False)
    sizes = map(terminal.size_text, (found["size"], found["limit"]))
    console.print(
        f"{found['directory']}: {len(found['entries'])} entries, {' of '.join(sizes)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _age(seconds: float) -> str:
    unit = next((name for name in "dhm" if seconds >= _UNITS[name]), "s")
    return f"{max(seconds, 0.0) / _UNITS[unit]:.0f} {unit}"

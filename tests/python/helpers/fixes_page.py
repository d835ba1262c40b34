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
"""Writes ``docs/fixes.md``, which groups the fixes by what a user of stock TVM sees.

``python tests/python/helpers/fixes_page.py > docs/fixes.md`` updates it.
"""

import re
from collections.abc import Iterator

from tvm_fixes.fixes import FIXES, Fix, Kind, Symptom
from tvm_fixes.probes import PROBES

LICENSE = """\
<!--
Licensed to the Apache Software Foundation (ASF) under one or more contributor license
agreements.  See the NOTICE file distributed with this work for additional information
regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
Version 2.0 (the "License"); you may not use this file except in compliance with the
License.  You may obtain a copy of the License at

  http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the
License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
either express or implied.  See the License for the specific language governing permissions
and limitations under the License.
-->"""

_INTRODUCTION = """\
# Fixes

What goes wrong with apache-tvm 0.27.0.post1, and which fix of tvm-fixes helps. Search this page for
the text of an error, or for an operator; "…" stands for any text, N for a digit. Each fix has a
small program that fails without it. `tvm-fixes doctor` runs these programs on your installation.

`import tvm_fixes` is enough for fixes of operator attributes, code generators and bindings. Fixes
of importers are in `tvm_fixes.frontend`; passes are in `tvm_fixes.pipeline` and
`tvm_fixes.transform`. `tvm_fixes.compile` uses them all. `TVM_FIXES_DISABLE=id,id` turns fixes off.

<!-- Generated: python tests/python/helpers/fixes_page.py > docs/fixes.md -->"""

_HEADINGS = {
    Symptom.CRASH: "Crashes and memory",
    Symptom.ERROR: "Errors",
    Symptom.WRONG: "Wrong results without an error",
    Symptom.COST: "Slow or too large",
}

_CRASHES = re.compile("SIG|bad_alloc")

# Readable replacements for regular expression syntax.
_READABLE = (
    (r"\.\*", " … "),
    (r"\\w\+", "…"),
    (r"\\d\{(\d)\}", lambda match: "N" * int(match[1])),
    (r"\\d", "N"),
    (r"\\(.)", r"\1"),
    (r": crashed$", ""),
    (r" +", " "),
)


def page() -> str:
    """The page, in Markdown."""
    sections = [LICENSE, _INTRODUCTION]
    for symptom, heading in _HEADINGS.items():
        rows = [_row(fix, symptom) for fix in FIXES if symptom in fix.symptoms]
        has_errors = symptom in (Symptom.CRASH, Symptom.ERROR)
        columns = ["stock TVM", *["error"] * has_errors, "fix", "upstream"]
        sections.append(f"## {heading}\n\n" + _table(columns, rows))
    rows = [[f"`{fix.id}`", str(fix.kind), _escape(fix.summary)] for fix in FIXES]
    sections.append("## All fixes\n\n" + _table(["fix", "kind", "what it does"], rows))
    return "\n\n".join(sections) + "\n"


def errors(fix: Fix) -> Iterator[tuple[Symptom, str]]:
    """Yield the errors of the probe of `fix`, each with its symptom.

    An assertion of the probe itself is not one of TVM's errors.
    """
    if fix.kind is Kind.ENVIRONMENT:
        return
    for pattern in PROBES[fix.id].symptom.pattern.split("|"):
        if pattern.startswith("AssertionError"):
            continue
        symptom = Symptom.CRASH if _CRASHES.search(pattern) else Symptom.ERROR
        for part, text in _READABLE:
            pattern = re.sub(part, text, pattern)
        yield symptom, pattern.strip()


def _row(fix: Fix, symptom: Symptom) -> list[str]:
    cells = [_escape(fix.symptoms[symptom])]
    if symptom in (Symptom.CRASH, Symptom.ERROR):
        cells.append(" or ".join(f"`{text}`" for shown, text in errors(fix) if shown is symptom))
    links = (f"[#{n}](https://github.com/apache/tvm/issues/{n})" for n in fix.upstream)
    return [*cells, f"`{fix.id}`", ", ".join(links)]


def _escape(text: str) -> str:
    """Escape the Markdown markup in `text`, except in code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_|<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


if __name__ == "__main__":
    print(page(), end="")

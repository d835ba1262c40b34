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
"""A staging area with one pull request, for a repository with one file."""

import hashlib
from pathlib import Path

LINES = "one\n2\n3\nfour\nfive\n"
CHANGED = "one\ntwo\nfour\nfour and a half\nfive\n"
TEST = "import tvm.testing\n\n\ndef test_lines():\n    pass\n\n\ntvm.testing.main()\n"

DESCRIPTION = """\
<!--
The licence.
-->
# [Fix][Relax] Keep the second line

```text
Description: The second line is lost,
 as is the end of this one.
Bug: https://example.org/1
Forwarded: no
Last-Update: 2026-01-31
Applied-Upstream: no
Base: v1.0-3-g0123456789012345678901234567890123456789
Fix: conv-legalize, conv-infer-layout
```

## Why

It is lost.

For good.

## How

- Keep it.
"""


def _sha256(*lines: str) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


EDITS = f"""\
[[edit]]
file = "src/lines.txt"
lines = [2, 3]
sha256 = "{_sha256("2", "3")}"
text = '''
two
'''

[[edit]]
file = "src/lines.txt"
after = 4
sha256 = "{_sha256("four", "five")}"
text = '''
four and a half
'''
"""


def write_area(folder: Path, name: str = "more-lines") -> Path:
    """Write a staging area with the pull request `name` into `folder`, and return `folder`."""
    test = folder / name / "files/tests/python/relax/test_lines.py"
    test.parent.mkdir(parents=True)
    test.write_text(TEST)
    (folder / name / "PR.md").write_text(DESCRIPTION)
    (folder / name / "edits.toml").write_text(EDITS)
    with (folder / "series").open("a") as series:
        series.write(f"{name}  # in order\n")
    return folder

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
"""Writes ``docs/attributes.md`` from the declarations in ``tvm_fixes.attributes``.

``python tests/python/helpers/attributes_page.py > docs/attributes.md`` updates it.
"""

from collections.abc import Iterable

from helpers.fixes_page import LICENSE
from tvm_fixes.attributes import OWN, TVM, Attribute

_INTRODUCTION = """\
# Attributes of IR

What passes put on functions, blocks and loops for other passes. `python/tvm_fixes/attributes.py`
declares them; a test finds those that are not declared. Modules are named without `tvm_fixes.`.

<!-- Generated: python tests/python/helpers/attributes_page.py > docs/attributes.md -->"""


def page() -> str:
    """The page, in Markdown."""
    sections = [LICENSE, _INTRODUCTION]
    sections.append("## Ours\n\n" + _table(OWN))
    sections.append("## TVM's\n\nThose that our passes write or read.\n\n" + _table(TVM))
    return "\n\n".join(sections) + "\n"


def _table(declared: Iterable[Attribute]) -> str:
    rows = [("attribute", "of", "meaning", "written by", "read by"), ("---",) * 5]
    rows += [
        (f"`{each}`", each.holder, each.meaning, _names(each.writers), _names(each.readers))
        for each in declared
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _names(modules: Iterable[str]) -> str:
    return ", ".join(each if each == "TVM" else f"`{each}`" for each in modules) or "-"


if __name__ == "__main__":
    print(page(), end="")

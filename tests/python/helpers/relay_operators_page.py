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
"""Writes ``docs/tables/relay_operators.md``, which lists the operators of Relay.

``python tests/python/helpers/relay_operators_page.py > docs/tables/relay_operators.md`` updates it.
"""

from tvm_fixes import relay

_EFFECTS = {"computes": "supported", "annotation": "dropped"}


def page() -> str:
    """The page as Markdown."""
    operators = sorted(relay.operators().values(), key=lambda operator: operator.name)
    count = {effect: 0 for effect in ("computes", "annotation", "rejected")}
    for operator in operators:
        count[operator.effect] += 1
    lines = [
        "# Operators of Relay",
        "",
        f"{len(operators)} operators of TVM 0.6 to 0.19: {count['computes']} are translated, "
        f"{count['annotation']} annotations are dropped, {count['rejected']} are rejected. "
        "A supported operator may still reject attributes or dtypes; the error names them.",
        "",
        "<!-- Generated: python tests/python/helpers/relay_operators_page.py > "
        "docs/tables/relay_operators.md -->",
        "",
        "| operator | status | reason |",
        "| --- | --- | --- |",
    ]
    for operator in operators:
        status = _EFFECTS.get(operator.effect, "rejected")
        lines.append(f"| `{operator.name}` | {status} | {operator.rejection} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())

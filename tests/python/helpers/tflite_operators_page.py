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
"""Writes ``docs/tables/tflite_operators.md``, which lists the builtin operators of TFLite.

``python tests/python/helpers/tflite_operators_page.py > docs/tables/tflite_operators.md``
updates it.
"""

from tvm_fixes.frontend.tflite.call import CONVERTERS
from tvm_fixes.frontend.tflite.file.schema import BUILTINS

_NOT_OPERATORS = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES")


def page() -> str:
    """The page as Markdown."""
    operators = [
        name
        for name in sorted(BUILTINS)
        if name not in _NOT_OPERATORS and not name.startswith("STABLEHLO_")
    ]
    supported = CONVERTERS.operators()
    count = sum(name in supported for name in operators)
    lines = [
        "# Builtin operators of TFLite",
        "",
        f"{count} of {len(operators)} operators are supported; those named STABLEHLO_ are not. A "
        "supported operator may still reject options, dtypes or quantization; the error names "
        "them.",
        "",
        "<!-- Generated: python tests/python/helpers/tflite_operators_page.py > "
        "docs/tables/tflite_operators.md -->",
        "",
        "| operator | status |",
        "| --- | --- |",
        *(f"| {name} | {'supported' if name in supported else 'rejected'} |" for name in operators),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())

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
"""The time to read large Relay programs, text and JSON, compared with Python's ``json.loads``."""

import json
import math

from tvm_fixes import relay

from .measure import Comparison, compare

SIZE = 100_000_000
"""The minimum length of the text and of the JSON."""

MAX_SHARE = 1.0
"""The maximum time to parse text, as a share of the time of ``json.loads``."""

_HEAD = """#[version = "0.0.5"]
def @main(%v: Tensor[(1, 8, 16, 16), float32], %w: Tensor[(8, 8, 3, 3), float32]) {
  %0 = nn.relu(%v);
"""
_CALL = "  %{} = nn.conv2d(%{}, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]) "
_CALL += "/* ty=Tensor[(1, 8, 16, 16), float32] */;\n"


def program(calls: int) -> str:
    """Return the text of a program with a chain of `calls` convolutions."""
    lines = (_CALL.format(i + 1, i) for i in range(calls))
    return f"{_HEAD}{''.join(lines)}  %{calls}\n}}\n"


def documents(size: int = SIZE) -> tuple[str, str]:
    """Return a program as text and another as JSON, each of at least `size` characters."""
    sample = program(1000)
    text = program(math.ceil(1000 * size / len(sample)))
    saved = relay.save_json(relay.parse(sample))
    return text, relay.save_json(relay.parse(program(math.ceil(1010 * size / len(saved)))))


def comparisons(size: int = SIZE) -> list[Comparison]:
    """Compare the readers on documents of at least `size` characters."""
    text, saved = documents(size)
    implementations = {
        "json.loads of JSON": lambda: json.loads(saved),
        "relay.parse of text": lambda: relay.parse(text),
        "relay.load_json of JSON": lambda: relay.load_json(saved),
    }
    return [compare(f"read {size / 1e6:.3g} MB", implementations, runs=3)]


def check(comparison: Comparison) -> None:
    """Check that text is parsed fast enough.

    Raises
    ------
    RuntimeError
        If parsing takes more than :data:`MAX_SHARE` of the time of ``json.loads``.
    """
    parse = comparison.implementations[1]
    ratio = comparison.ratio(parse)
    if ratio > MAX_SHARE:
        raise RuntimeError(
            f"{comparison.title}: {parse.name} takes {ratio:.3g} of the time of json.loads, "
            f"more than {MAX_SHARE:.3g}"
        )

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
"""``ci/prose.py`` names file, line and replacement of a phrase to avoid."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import tvm.testing

SCRIPT = Path(__file__).parents[2] / "ci" / "prose.py"


@pytest.fixture(scope="module")
def prose():
    spec = spec_from_file_location("prose", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# {} keeps the phrases out of this file, which the script reads too.
FOUND = {
    "It fails without a{} word.": "silently",
    "It holds weights{} alone.": "only X",
    "It is{} no PrimFunc.": "is not a X",
    "# the calm{}est run": "fastest",
    "_MO{}ST_BYTES = 3": "MAX_",
    "LEA{}ST_BYTES = 3": "MIN_",
    "What is dis{}proved is an error.": "Proven violations are",
    "fixes that took{} part": "applied",
    "integers of 8{} bits": "N-bit X",
    "a block of{} threads": "thread block",
    "The call stays as it{} is.": "is kept, or: is unchanged",
    "the integers less their{} zero points": "minus",
    "NaN is the greatest{} element.": "the smallest, or: the largest",
    "an axis in another{} layout than TVM's": "X other than, or: differs from",
    '""' + '"What{} a kernel may use.': "begin with the noun",
}


@pytest.mark.parametrize("text", FOUND, ids=lambda text: text.format(""))
def test_a_phrase(prose, text):
    [(line, _, instead)] = prose.find("\n" + text.format(""))
    assert (line, instead) == (2, FOUND[text])


@pytest.mark.parametrize("start", ["", "    # ", "  // ", " * "])
def test_a_wrapped_phrase(prose, start):
    [(line, phrase, _)] = prose.find(f"\n{start}It runs without\n{start}a{' '}word here.\n")
    assert line == 2
    assert phrase.startswith("without")


@pytest.mark.parametrize(
    "text",
    [
        "The pass leaves such a call alone.",
        "A weight that is tied is left alone.",
        "for alone in (False, True):",
        "alone = tvm.IRModule({})",
        "Each test runs alone.",
        "There is no GPU here.",
        "It is no longer than that.",
        "almost_all = foremost_of(x)",
        "expected integers of 8 bits",
        "the greatest common divisor",
        "an axis other than the last",
    ],
)
def test_an_allowed_phrase(prose, text):
    assert not list(prose.find(text))


def test_the_program(tmp_path):
    """It exits with 1 and names the places if it finds a phrase, as in its own list."""
    done = subprocess.run([sys.executable, SCRIPT, SCRIPT.parent / "install.sh"])
    assert done.returncode == 0
    done = subprocess.run(
        [sys.executable, SCRIPT, SCRIPT], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "ci/prose.py:" in done.stderr
    assert "-> silently" in done.stderr


if __name__ == "__main__":
    tvm.testing.main()

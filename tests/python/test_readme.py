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
"""What the README says is so: its table of fixes, and its programs as they are printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.models import onnx_conv
from tvm_fixes.fixes import FIXES

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_table_is_that_of_the_records():
    rows = re.findall(r"^\| `([^`]+)` \|.*\|([^|]*)\|$", README, re.MULTILINE)
    links = r"\[#(\d+)\]\(https://github\.com/apache/tvm/issues/(\d+)\)"
    listed = {fix_id: re.findall(links, upstream) for fix_id, upstream in rows}
    assert all(shown == linked for pairs in listed.values() for shown, linked in pairs)
    found = {fix_id: tuple(int(shown) for shown, _ in pairs) for fix_id, pairs in listed.items()}
    assert found == {fix.id: fix.upstream for fix in FIXES}
    assert list(found) == [fix.id for fix in FIXES]
    upstream = "".join(upstream for _, upstream in rows)
    assert upstream.count("#") == sum(map(len, listed.values())), "a link of another form"


def run(program: str, directory: Path) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr


def test_the_programs_run(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    onnx.save(onnx_conv((1, 3, 64, 64)), tmp_path / "model.onnx")
    *programs, alone = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(programs) == 4
    save = "\nnp.save({!r}, output if isinstance(output, np.ndarray) else output.numpy())\n"
    lifted = (
        "assert (right == 50).all() and (right - wrong == 10).all() and (same == right).all()\n"
        "assert (more == 60).all() and (again == more).all()\n"
    )
    with_tvm_fixes = "\n".join([*programs, lifted]) + save.format("with.npy")
    run(with_tvm_fixes, tmp_path)
    without = "import sys\nsys.modules['tvm_fixes'] = None\n"  # its import would raise
    run(without + alone + save.format("without.npy"), tmp_path)
    output = np.load(tmp_path / "with.npy")
    assert np.abs(output).max() > 0
    np.testing.assert_array_equal(output, np.load(tmp_path / "without.npy"))


if __name__ == "__main__":
    tvm.testing.main()

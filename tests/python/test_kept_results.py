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
"""Results of long tests that the next run reads."""

from pathlib import Path

import tvm.testing

from helpers.kept_results import KeptResults


def test_the_next_run_reads_them(tmp_path: Path) -> None:
    results = KeptResults(tmp_path / "new", "opinfo")
    results.record("add", [["right", ""]])
    with (tmp_path / "new" / "opinfo.jsonl").open("a") as file:
        file.write('{"mul": [["ri')  # killed while it wrote
    again = KeptResults(tmp_path / "new", "opinfo")
    assert again["add"] == [["right", ""]]
    assert "mul" not in again
    assert "add" not in KeptResults(tmp_path / "new", "onnx_node_tests")


def test_without_a_folder_nothing_is_written() -> None:
    results = KeptResults(None, "opinfo")
    results.record("add", [])
    assert "add" in results
    assert "add" not in KeptResults(None, "opinfo")


if __name__ == "__main__":
    tvm.testing.main()

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

"""The commands of the workflows exist, and only the job that publishes gets permissions."""

import re
from pathlib import Path

import pytest
import tvm.testing
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def commands(workflow: Path) -> list[str]:
    """The commands of all steps."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_exist(workflow: Path) -> None:
    targets = set(re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets = {name for line in targets for name in line.split()}
    text = "\n".join(commands(workflow))
    called = re.findall(r"\bmake ([\w-]+)", text)
    assert called
    assert set(called) <= targets
    for script in re.findall(r"\bci/[\w-]+\.sh", text):
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_only_the_job_that_publishes_has_permissions(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] == {"contents": "read"}
    granted = {
        name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job
    }
    assert granted in ({}, {"publish": {"id-token": "write"}})


if __name__ == "__main__":
    tvm.testing.main()

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
"""The faults of ``make check-faults`` can be planted in the package as it is."""

import ast
from pathlib import Path

import pytest
import tvm.testing

from tests.faults.catalog import FAULTS

PACKAGE = Path(__file__).parents[2] / "python"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_changed_line_exists(fault):
    text = (PACKAGE / fault.file).read_text()
    assert text.count(fault.right) == 1
    changed = ast.parse(text.replace(fault.right, fault.wrong))
    assert ast.dump(changed) != ast.dump(ast.parse(text))


if __name__ == "__main__":
    tvm.testing.main()

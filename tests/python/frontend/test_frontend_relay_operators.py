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
"""The table of Relay's operators."""

from pathlib import Path

import tvm.testing

from helpers import relay_operators_page
from tvm_fixes import relay
from tvm_fixes.frontend.relay.call import CONVERTERS

ROOT = Path(__file__).parents[3]


def test_the_table_is_up_to_date():
    table = ROOT / "docs" / "tables" / "relay_operators.md"
    assert table.read_text() == relay_operators_page.page() + "\n"


def test_operators_that_compute_have_a_converter():
    computing = {o.name for o in relay.operators().values() if o.effect == "computes"}
    assert computing == CONVERTERS.operators()


def test_rejected_operators_have_a_reason():
    assert all(o.rejection for o in relay.operators().values() if o.effect == "rejected")


if __name__ == "__main__":
    tvm.testing.main()

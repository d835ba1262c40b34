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
"""One-line error summaries."""

import signal

import pytest
import tvm
import tvm.testing
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fixes.errors import CompileError, UnsupportedOperatorError, UsageError, summarize


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return x


@pytest.mark.parametrize("error", [CompileError, UnsupportedOperatorError, UsageError])
def test_an_error_crosses_native_code_by_its_type(error):
    def fail(_mod, _context):
        raise error("no such axis: 7")

    wrapped = tvm.transform.module_pass(fail, opt_level=0, name="Fail")
    with pytest.raises(error, match="no such axis: 7") as raised:
        tvm.transform.Sequential([wrapped])(Module)
    assert type(raised.value) is error


def test_an_interrupt_crosses_native_code():
    def interrupt(_mod, _context):
        signal.raise_signal(signal.SIGINT)

    wrapped = tvm.transform.module_pass(interrupt, opt_level=0, name="Interrupt")
    with pytest.raises(KeyboardInterrupt):
        tvm.transform.Sequential([wrapped])(Module)


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("a\n  b\n"), "a b"),
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
        (RuntimeError("x" * 1000), "x" * 599 + "…"),
    ],
)
def test_summarize(error, line):
    assert summarize(error) == line


def test_summarize_says_where_an_exception_without_a_message_came_from():
    def check():
        raise AssertionError

    with pytest.raises(AssertionError) as error:
        check()
    assert summarize(error.value) == "AssertionError in check"


if __name__ == "__main__":
    tvm.testing.main()

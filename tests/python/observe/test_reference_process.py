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
"""Tests of the reference in a separate process."""

import itertools
import os
import signal
import threading
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import tvm.testing
from onnx import helper

from helpers.models import onnx_model
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import UsageError
from tvm_fixes.observe.reference_process import ReferenceProcess

INPUTS = [np.arange(4, dtype="float32")]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_outputs_and_times():
    def run(values):
        x = values[0]
        wide = np.broadcast_to(x, (3, 4))
        return [
            wide,
            x.astype(ml_dtypes.bfloat16),
            x[:0],
            np.array(os.getpid()),
            x > 1,
        ]

    process = ReferenceProcess(lambda: ("a reference", run), INPUTS)
    try:
        assert process.name == "a reference"
        wide, half, none, pid, booleans = process.outputs()
        np.testing.assert_array_equal(wide, [INPUTS[0]] * 3)
        assert half.dtype == ml_dtypes.bfloat16 and half.tolist() == [0, 1, 2, 3]
        assert none.shape == (0,) and pid.shape == () and booleans.tolist() == [0, 0, 1, 1]
        assert pid != os.getpid()
        assert all(0 < seconds < 1 for seconds in process.block(3, 1.0))
    finally:
        process.close()
    assert not is_alive(int(pid))


@pytest.mark.parametrize(
    ("passed", "used", "runs"),
    [
        (6, 6, 2),
        (6, 1, 10),  # other processes have the processor
        (60, 1, 2),  # but not forever
        (1, 6, 10),  # several threads
    ],
)
def test_runs_wait_for_the_processor(monkeypatch, passed, used, runs):
    clock = SimpleNamespace(passed=0, used=0)
    fake = SimpleNamespace(monotonic=lambda: clock.passed, process_time=lambda: clock.used)
    monkeypatch.setattr("tvm_fixes.observe.reference_process.time", fake)

    def vary(seed):
        def run(values):
            clock.passed += passed
            clock.used += used
            return [np.full(1, float(seed))]

        return run

    process = ReferenceProcess(lambda: ("", lambda values: values), INPUTS, vary)
    found = process.rounded_outputs(range(10), 10)
    process.close()
    assert [float(run[0][0]) for run in found] == list(range(runs))


def test_outputs_keep_their_structure():
    calls = itertools.count()
    process = ReferenceProcess(
        lambda: ("", lambda values: [np.full(4, float(next(calls)))]), INPUTS
    )
    first, second = process.outputs(), process.outputs()
    process.close()
    assert (first[0].tolist(), second[0].tolist()) == ([0] * 4, [1] * 4)


def test_without_a_child_nothing_stays_open(monkeypatch):
    def no_fork(_serve):
        raise BlockingIOError("no processes left")

    monkeypatch.setattr("tvm_fixes.observe.reference_process.start_forked", no_fork)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BlockingIOError):
        ReferenceProcess(lambda: ("", lambda values: []), INPUTS)
    assert os.listdir("/proc/self/fd") == before


def test_errors_keep_their_type():
    def lacking():
        raise UsageError("comparing needs a package")

    with pytest.raises(UsageError, match="needs a package"):
        ReferenceProcess(lacking, INPUTS)

    def failing(values):
        raise KeyError("x")

    process = ReferenceProcess(lambda: ("", failing), INPUTS)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="KeyError: 'x'"):
            process.outputs()
    process.close()


@pytest.mark.parametrize("when", ["make", "run"])
def test_a_crash(when):
    def crash(*_):
        signal.raise_signal(signal.SIGFPE)

    make = crash if when == "make" else lambda: ("", crash)
    with pytest.raises(RuntimeError, match="SIGFPE: crashed"):
        ReferenceProcess(make, INPUTS).outputs()


def test_ctrl_c_ends_it():
    process = ReferenceProcess(lambda: ("", lambda values: threading.Event().wait()), INPUTS)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        process.outputs()
    process.close()
    timer.join()


def test_output_that_is_not_a_tensor():
    process = ReferenceProcess(lambda: ("", lambda values: [[1, 2]]), INPUTS)
    with pytest.raises(RuntimeError, match="output 0: expected a tensor of numbers, got list"):
        process.outputs()
    process.close()


def test_onnx_runtime_divides_the_least_integer():
    """-2**31 / -1 overflows int32 and crashes ONNX Runtime."""
    values = [
        helper.make_tensor(name, 6, [2], [value] * 2)
        for name, value in (("a", -(2**31)), ("b", -1))
    ]
    nodes = [helper.make_node("Constant", [], [value.name], value=value) for value in values]
    nodes += [
        helper.make_node("Div", ["a", "b"], ["c"]),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", 6, [2])], [("y", 6, [2])])
    report = compile_model(model).report
    assert report.equal is None
    problem = "the reference fails with inputs x (2): its process ended: SIGFPE"
    assert problem in report.not_compared


if __name__ == "__main__":
    tvm.testing.main()

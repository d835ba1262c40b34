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
"""tvm_fixes.observe.latency: one definition of the time of a run, for all tools."""

import os
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import tvm.testing
from onnx import parser

import tvm_fixes
from tvm_fixes import debug
from tvm_fixes.observe import latency
from tvm_fixes.observe.latency import Latency, block, measure
from tvm_fixes.source import open_source
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.support.threads import thread_count

ROOT = Path(__file__).parents[3]

MODEL = parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 18]>
    sums (float[4, 8] x, float[4, 8] y) => (float[4, 8] sum, float[4, 8] product) {
        sum = Add(x, y)
        product = Mul(x, y)
    }"""
)


@pytest.fixture
def clock(monkeypatch):
    """A fake clock; call it to advance the time."""
    now = [0.0]

    def advance(seconds):
        now[0] += seconds

    monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return advance


def test_calls_take_turns_in_blocks(clock):
    calls = []
    timers = [partial(block, partial(calls.append, name)) for name in "ab"]
    result = measure(timers, blocks=2, runs=3)
    assert calls == (["a"] * 4 + ["b"] * 4) * 2
    assert [one.seconds for one in result] == [0, 0]


def test_latency_is_the_median_of_all_calls(clock):
    #                 not counted
    seconds = iter([0.5, 0.030, 0.040, 0.031, 0.5, 0.002, 0.003, 0.9, 0.5, 0.007, 0.007, 0.007])
    (result,) = measure(
        [partial(block, lambda: clock(next(seconds)))], blocks=3, runs=3, budget=100.0
    )
    assert result.seconds == pytest.approx(0.007)
    assert next(seconds, None) is None


def test_a_ratio_is_the_median_over_the_turns():
    ours = Latency(((2.0, 2.0), (20.0, 20.0), (3.0, 3.0)))
    theirs = Latency(((1.0, 1.0), (10.0, 10.0), (1.0, 1.0)))
    assert ours.ratio(theirs) == pytest.approx((2.0, 2.0, 2.5))
    assert Latency(((2.0,),)).ratio(Latency(((1.0,),))) == (2.0, 2.0, 2.0)


def test_slow_calls_are_made_twice(clock):
    calls = []

    def slow(name):
        calls.append(name)
        clock(10.0)

    result = measure([partial(block, partial(slow, name)) for name in "ab"])
    assert [one.seconds for one in result] == [10.0, 10.0]
    assert calls == ["a", "a", "b", "b"]


def test_measurement_stops_when_the_time_is_up():
    calls = []
    measure([partial(block, lambda: calls.append("a"))], runs=100, budget=0.0)
    assert len(calls) == 2


def test_all_tools_use_it(monkeypatch, tmp_path):
    """`compile` and `profile` measure ours and the reference, in this order, with arrays."""
    timers = []
    real = latency.measure

    def spy(given, **options):
        timers.append([getattr(timer, "func", timer) for timer in given])
        return real(given, blocks=1, runs=1)

    monkeypatch.setattr(latency, "measure", spy)
    model = tvm_fixes.compile(MODEL)
    found = debug.profile(MODEL, seconds=0.1)
    compiled, profiled = timers
    assert compiled[0] is profiled[0] is latency.block
    assert compiled[-1].__func__ is profiled[-1].__func__
    assert model.report.latency_ratio[0] > 0
    model.save(tmp_path / "out")
    loaded = tvm_fixes.CompiledModel.load(tmp_path / "out")
    assert loaded.report.latency_ratio == model.report.latency_ratio
    assert found.reference.run_seconds > 0


def test_no_other_module_defines_a_latency():
    """Only limits of the machine, and instruments around single calls, have clocks of their own."""
    own = {
        path.relative_to(ROOT / "python").as_posix()
        for path in ROOT.glob("python/**/*.py")
        if "time.perf_counter() - start" in path.read_text()
    }
    assert own == {
        "tvm_fixes/compiler/optimizing.py",  # passes
        "tvm_fixes/compiler/progress.py",  # steps
        "tvm_fixes/observe/latency.py",
        "tvm_fixes/report/profiling.py",  # the limits of the machine
        "tvm_fixes/report/torch_times.py",  # nodes
    }
    users = {
        path.relative_to(ROOT).as_posix()
        for folder in ("python", "examples")
        for path in (ROOT / folder).glob("**/*.py")
        if "latency.measure(" in path.read_text()
    }
    assert users == {
        "examples/demo.py",
        "python/tvm_fixes/compiler/reference.py",
        "python/tvm_fixes/report/profiling.py",
    }


@pytest.mark.parametrize("threads", (1, 2))
def test_references_have_as_many_threads(threads):
    """The number of ``TVM_NUM_THREADS`` reaches ONNX Runtime's session, and PyTorch."""

    def counts():
        os.environ["TVM_NUM_THREADS"] = str(threads)
        _, session = open_source(MODEL).session()
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2, 3),))
        open_source(program).reference()
        own = thread_count()
        return own, session.get_session_options().intra_op_num_threads, torch.get_num_threads()

    assert value_of(counts) == (threads, threads, threads)


def test_references_have_one_thread_on_one_core():
    def counts():
        for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.pop(name, None)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        _, session = open_source(MODEL).session()
        return session.get_session_options().intra_op_num_threads

    assert value_of(counts) == 1


def test_a_count_of_threads_neither_pins_the_caller_nor_starts_more():
    def states():
        os.environ["TVM_NUM_THREADS"] = "1"
        cores = os.sched_getaffinity(0)
        thread_count()
        first = threading.active_count(), len(os.listdir("/proc/self/task"))
        thread_count()
        again = threading.active_count(), len(os.listdir("/proc/self/task"))
        return os.sched_getaffinity(0) == cores, again == first

    assert value_of(states) == (True, True)


def value_of(call):
    """The value of a call in a child, whose thread has no pool of worker threads yet."""

    def on_new_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        thread.join()
        return found[0]

    outcome = run_forked(on_new_thread, timeout=60)
    assert outcome.kind is OutcomeKind.VALUE, outcome
    return outcome.value


def test_a_small_run_makes_few_calls():
    """A run adds a few calls to those of the virtual machine."""
    model = tvm_fixes.compile(MODEL, compare=False)
    inputs = [np.ones((4, 8), "float32")] * 2
    for _ in range(3):
        model.run(*inputs)
    calls = []

    def note(frame, event, argument):
        if event in ("call", "c_call"):
            calls.append(getattr(argument, "__name__", frame.f_code.co_name))

    sys.setprofile(note)
    try:
        model.run(*inputs)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 25, calls


if __name__ == "__main__":
    tvm.testing.main()

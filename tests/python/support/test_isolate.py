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
"""Calls in forked children."""

import ctypes
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fixes.support.isolate import OutcomeKind, forked, run_all_forked, run_forked


def test_value():
    outcome = run_forked(lambda: {"answer": [1, 2.5, "x"]}, timeout=30)
    assert outcome.kind is OutcomeKind.VALUE
    assert outcome.value == {"answer": [1, 2.5, "x"]}
    assert outcome.seconds > 0


def test_value_larger_than_a_pipe_buffer():
    assert run_forked(lambda: b"x" * 1_000_000, timeout=30).value == b"x" * 1_000_000


def test_exception_keeps_type_and_message():
    def fail():
        raise LookupError("no such layout: NHCW")

    outcome = run_forked(fail, timeout=30)
    assert (outcome.kind, outcome.name) == (OutcomeKind.EXCEPTION, "LookupError")
    assert outcome.message == "no such layout: NHCW"
    assert str(outcome) == "LookupError: no such layout: NHCW"
    assert "in fail" in outcome.output


def test_value_that_does_not_pickle_is_an_exception():
    outcome = run_forked(lambda: lambda: None, timeout=30)
    assert outcome.kind is OutcomeKind.EXCEPTION
    assert "pickle" in outcome.message


def test_crash_is_an_answer():
    outcome = run_forked(os.abort, timeout=30)
    assert (outcome.kind, outcome.name) == (OutcomeKind.SIGNAL, "SIGABRT")
    segfault = run_forked(lambda: os.kill(os.getpid(), signal.SIGSEGV), timeout=30)
    assert (segfault.kind, segfault.name) == (OutcomeKind.SIGNAL, "SIGSEGV")


def test_exit_without_answer():
    outcome = run_forked(lambda: os._exit(3), timeout=30)
    assert outcome.kind is OutcomeKind.EXIT
    assert "status 3" in outcome.message
    assert run_forked(lambda: sys.exit(3), timeout=30).name == "SystemExit"


def test_a_library_that_exits_runs_no_handler_of_the_parent(tmp_path):
    def parent():
        libc = ctypes.CDLL(None)
        handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: tmp_path.rmdir())
        libc.__cxa_atexit(handler, None, None)
        return run_forked(lambda: libc.exit(7), timeout=30)

    outcome = run_forked(parent, timeout=60).value
    assert outcome.kind is OutcomeKind.EXIT
    assert outcome.message == "exited with status 7 without an answer"
    assert tmp_path.exists()


def test_without_a_time_limit():
    assert run_forked(lambda: 3, timeout=None).value == 3
    assert [o.value for o in run_all_forked([int, int], timeout=None, jobs=1)] == [0, 0]


def test_hang_is_killed():
    begin = time.monotonic()
    outcome = run_forked(signal.pause, timeout=0.5)
    assert outcome.kind is OutcomeKind.TIMEOUT
    assert str(outcome) == "timed out after 0.5 s"
    assert 0.5 <= time.monotonic() - begin < 20


def test_a_timeout_ends_grandchildren(tmp_path):
    def hang():
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid").write_text(str(child.pid))
        child.wait()

    assert run_forked(hang, timeout=5).kind is OutcomeKind.TIMEOUT
    pid = int((tmp_path / "pid").read_text())
    assert _ends(pid)


def test_hang_takes_isolated_children_along(tmp_path):
    def hang():
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(1000)

    outcome = run_forked(lambda: run_forked(hang, timeout=None), timeout=3)
    assert outcome.kind is OutcomeKind.TIMEOUT
    assert _ends(int((tmp_path / "pid").read_text()))


def _ends(pid):
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor):
        return bool(select.select([descriptor], [], [], 30)[0])


def test_output_is_kept_from_the_terminal(capfd):
    def speak():
        print("from Python")
        os.write(1, b"from native code\n")
        os.write(2, b"from native code's stderr\n")

    outcome = run_forked(speak, timeout=30)
    assert outcome.kind is OutcomeKind.VALUE
    assert "from Python" in outcome.output
    assert "from native code\n" in outcome.output
    assert "stderr" in outcome.output
    assert run_forked(os.abort, timeout=30).kind is OutcomeKind.SIGNAL
    assert capfd.readouterr() == ("", "")


def call_in_a_child(number):
    outcome = run_forked(lambda: number * number, timeout=60)
    assert multiprocessing.current_process().daemon
    return outcome.value


def test_in_a_worker_of_a_pool():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(call_in_a_child, [3, 4]) == [9, 16]


def test_the_parent_is_untouched():
    def change():
        os.environ["TVM_FIXES_TEST"] = "changed"
        os.chdir("/")

    directory = os.getcwd()
    assert run_forked(change, timeout=30).kind is OutcomeKind.VALUE
    assert "TVM_FIXES_TEST" not in os.environ
    assert os.getcwd() == directory


def test_a_call_beside_a_block():
    with forked(lambda: 3) as outcomes:
        assert outcomes == []
    assert [outcome.value for outcome in outcomes] == [3]


def test_a_block_that_raises_ends_the_call():
    with (
        pytest.raises(ZeroDivisionError),
        forked(lambda: time.sleep(60)) as outcomes,
    ):
        _ = 1 / 0
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.TIMEOUT]


def test_no_zombie_and_no_open_file_is_left():
    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    run_forked(int, timeout=30)
    before = descriptors()
    outcomes = run_all_forked([int, os.abort, signal.pause, sys.exit, int], timeout=5, jobs=2)
    assert [outcome.kind.value for outcome in outcomes] == [
        "value",
        "signal",
        "timeout",
        "exception",
        "value",
    ]
    assert descriptors() == before
    assert multiprocessing.active_children() == []


def test_an_interrupt_leaves_no_child():
    def interrupt():
        pids = []
        real = multiprocessing.connection.wait

        def stop(sentinels, timeout):
            pids.extend(process.pid for process in multiprocessing.active_children())
            raise KeyboardInterrupt

        multiprocessing.connection.wait = stop
        try:
            run_all_forked([signal.pause, signal.pause], timeout=60, jobs=2)
        except KeyboardInterrupt:
            return len(pids), all(map(_ends, pids))
        finally:
            multiprocessing.connection.wait = real

    assert run_forked(interrupt, timeout=30).value == (2, True)


@pytest.mark.parametrize("timeout", [None, 60])
def test_an_interrupt_ends_a_call_and_is_raised(timeout):
    """Both the call and the waiting process can be interrupted."""

    def interrupted():
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        run_forked(signal.pause, timeout=timeout)

    def run():
        try:
            interrupted()
        except BaseException as error:
            os._exit(130 if type(error) is KeyboardInterrupt else 1)

    child = os.fork()
    if not child:
        run()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


def test_no_more_than_the_jobs_allowed_at_once(tmp_path):
    def overlap(name):
        (tmp_path / name).touch()
        alive = len(list(tmp_path.iterdir()))
        (tmp_path / name).unlink()
        return alive

    calls = [lambda name=str(index): overlap(name) for index in range(6)]
    assert [outcome.value for outcome in run_all_forked(calls, timeout=30, jobs=1)] == [1] * 6
    assert max(outcome.value for outcome in run_all_forked(calls, timeout=30, jobs=2)) <= 2


@pytest.mark.parametrize("timeout, jobs", [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_wrong_limits_are_rejected(timeout, jobs):
    with pytest.raises(ValueError, match="must be positive"):
        run_all_forked([int], timeout=timeout, jobs=jobs)


def test_worker_pools_of_the_parent_do_not_hang_the_child():
    """Parallel kernels of TVM and PyTorch run in the child after running in the parent."""
    torch = pytest.importorskip("torch")

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 4096), "float32")) -> R.Tensor((64, 4096), "float32"):
            return R.exp(x)

    # Made parallel explicitly: the default CPU pipeline leaves element-wise kernels serial.
    module = relax.transform.LegalizeOps()(Module)
    schedule = tvm.s_tir.Schedule(module["tir_exp"])
    block = schedule.get_sblock("compute")
    schedule.parallel(schedule.get_loops(block)[0])
    module["tir_exp"] = schedule.mod["main"]
    vm = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    data = np.random.default_rng(0).standard_normal((64, 4096), "float32")

    def work():
        tensor = torch.from_numpy(data)
        ours = vm["main"](tvm.runtime.tensor(data)).numpy()
        product = float((tensor @ tensor.T).sum())
        return float(np.abs(ours - np.exp(data)).max()), product

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        error, product = work()
        outcome = run_forked(work, timeout=60)
    finally:
        torch.set_num_threads(threads)
    assert outcome.kind is OutcomeKind.VALUE, outcome
    assert error < 1e-4
    assert outcome.value == pytest.approx((error, product), rel=1e-4)


if __name__ == "__main__":
    tvm.testing.main()

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
"""The bookkeeping of the speed benchmark, without timing."""

import argparse
import io
import json
import os
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tvm.testing
from rich.console import Console

pytest.importorskip("torch")

from benchmarks import report, speed, tables
from benchmarks.builders import BUILDERS
from benchmarks.cases import GROUPS
from benchmarks.driver import NEEDS, PEAKS, RUNTIME_NAMES, Bench, Settings, measured
from benchmarks.peaks import fused_multiply_add, triad
from benchmarks.process import Capped, Failure, Worker, Workers
from benchmarks.protocol import MAX_ERROR, QUANTIZED_RUNTIMES, Job
from benchmarks.results import Store
from benchmarks.runtimes import RUNTIMES
from benchmarks.worker import MAX_RUNS, Runner, largest_error, rest, serve
from tvm_fixes.errors import UsageError
from tvm_fixes.target import resolve, to_json

FAKE = Path(__file__).parent / "helpers" / "fake_worker.py"
TARGET = to_json(resolve("native"))
SETTINGS = Settings(turns=3, cap=30.0, build_cap=30.0)


@pytest.fixture(autouse=True)
def keep_settings_of_torch():
    """A worker changes these settings, and some tests run it in this process."""
    import torch

    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    yield
    torch.set_grad_enabled(grad)
    torch.set_num_threads(threads)


def script(*seconds: float, error: float = 0.0, **more: object) -> dict[str, object]:
    """The script of a correct worker; wall times are twice the CPU times."""
    turns = [{"cpu": s, "wall": 2 * s} for s in seconds or (1.0,) * 20]
    return {"check": {"error": error, "runs": 1}, "run": turns, **more}


def fakes(**scripts: dict[str, object]):
    """The commands of workers with these scripts, by role."""
    standard = {
        "data": {"open": {"flops": 6e9, "bytes": 10}},
        "fma": script(open={"amount": 3e9}),
        "triad": script(open={"amount": 5e9}),
    }

    def command(role, cores):
        return [sys.executable, str(FAKE), json.dumps((standard | scripts).get(role, script()))]

    return command


def measure(tmp_path, runtimes, settings=SETTINGS, cores=([0],), **scripts):
    with Workers(tmp_path / "logs", fakes(**scripts)) as workers:
        bench = Bench(workers, settings, runtimes, {}, tmp_path)
        return list(bench.rows("a case", "layers", cores))


def entry(*seconds: float, status: str = "ok", reason: str = "", **facts: object):
    turns = [(s, 2 * s) for s in seconds]
    return {"status": status, "reason": reason, "turns": turns, "facts": facts}


def row(case="a", group="layers", threads=1, flops=0, size=0, **runtimes):
    facts = {"flops": flops, "bytes": size}
    return {"case": case, "group": group, "threads": threads, "facts": facts, "runtimes": runtimes}


# The driver.


def test_a_case_has_a_tolerance(tmp_path):
    data = {"open": {"flops": 0, "bytes": 0, "tolerance": 0.02}}
    [found] = measure(tmp_path, ["eager", "ours"], data=data, ours=script(error=0.01))
    assert found["runtimes"]["ours"]["status"] == "ok"


def test_each_runtime_takes_its_turns(tmp_path):
    [found] = measure(tmp_path, ["eager", "ours"], ours=script(0.5, 0.25, 0.125))
    assert (found["case"], found["group"], found["threads"]) == ("a case", "layers", 1)
    assert found["facts"] == {"flops": 6e9, "bytes": 10}
    assert list(found["runtimes"]) == ["eager", "ours", *PEAKS]
    assert found["runtimes"]["ours"]["turns"] == [(0.5, 1.0), (0.25, 0.5), (0.125, 0.25)]
    assert [len(found["runtimes"][runtime]["turns"]) for runtime in found["runtimes"]] == [
        3,
        3,
        3,
        3,
    ]
    assert list(tmp_path.glob("tmp*")) == []


def test_each_set_of_cores_is_a_row_of_the_same_builds(tmp_path):
    # A second build would find no reply in the list.
    builds = {"ours-library": {"open": [{"build": 2.5}]}}
    rows = measure(tmp_path, ["eager", "ours"], cores=([0], [0, 1]), **builds)
    assert [found["threads"] for found in rows] == [1, 2]
    assert [found["runtimes"]["ours"]["facts"]["build"] for found in rows] == [2.5, 2.5]


def test_a_wrong_output_is_no_time(tmp_path):
    wrong = {"ort": script(error=0.002), "ours": script(error=float("nan"))}
    [found] = measure(tmp_path, ["eager", "ort", "ours"], **wrong)
    for runtime, error in (("ort", "0.002"), ("ours", "nan")):
        assert found["runtimes"][runtime]["status"] == "wrong"
        assert found["runtimes"][runtime]["turns"] == []
        reason = f"error {error} of the largest value, more than 0.001"
        assert found["runtimes"][runtime]["reason"] == reason
    assert found["runtimes"]["eager"]["status"] == "ok"
    json.dumps(found, allow_nan=False)


def test_a_quantized_model_has_a_tolerance_of_its_own(tmp_path):
    builds = {"onnx-quantized": {"open": {"tolerance": 0.01}}}
    errors = {"ort-quantized": 0.2, "stock-quantized": 0.02, "ours-quantized": 0.009}
    wrong = {runtime: script(error=error) for runtime, error in errors.items()}
    [found] = measure(tmp_path, list(errors), **builds, **wrong)
    entries = [found["runtimes"][runtime] for runtime in errors]
    assert [entry["status"] for entry in entries] == ["ok", "wrong", "ok"]
    assert [len(entry["turns"]) for entry in entries] == [3, 0, 3]
    # ONNX Runtime's kernels may saturate.
    assert [entry["reason"] for entry in entries] == [
        "error 0.2 of the largest value, more than 0.01",
        "error 0.02 of the largest value, more than 0.01",
        "",
    ]


def test_a_quantized_output_that_is_not_a_number_is_wrong(tmp_path):
    [found] = measure(tmp_path, ["ort-quantized"], **{"ort-quantized": script(error=float("nan"))})
    assert found["runtimes"]["ort-quantized"]["status"] == "wrong"
    json.dumps(found, allow_nan=False)


def test_without_a_quantized_model_its_runtimes_have_no_time(tmp_path):
    builds = {"onnx-quantized": {"open": {"failure": "ValueError: no"}}}
    [found] = measure(tmp_path, ["eager", *QUANTIZED_RUNTIMES], **builds)
    reasons = {runtime: found["runtimes"][runtime]["reason"] for runtime in QUANTIZED_RUNTIMES}
    assert reasons == dict.fromkeys(QUANTIZED_RUNTIMES, "onnx-quantized: ValueError: no")
    assert len(found["runtimes"]["eager"]["turns"]) == 3


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        ({"open": {"failure": "ValueError: no such operator"}}, "ValueError: no such operator"),
        ({"open": "die"}, "the process ended with exit status 3: a word on standard error"),
        (script(run="die"), "the process ended with exit status 3: a word on standard error"),
    ],
)
def test_a_failing_worker_does_not_stop_the_run(tmp_path, faulty, reason):
    [found] = measure(tmp_path, ["eager", "stock", "ours"], stock=faulty)
    assert found["runtimes"]["stock"]["status"] == "failed"
    assert found["runtimes"]["stock"]["reason"] == reason
    assert found["runtimes"]["stock"]["turns"] == []
    assert [len(found["runtimes"][runtime]["turns"]) for runtime in ("eager", "ours")] == [3, 3]


def test_a_worker_that_is_gone_is_started_again(tmp_path):
    with Workers(tmp_path / "logs", fakes(ours={"open": ["die"]})) as workers:
        bench = Bench(workers, SETTINGS, ["ours"], {}, tmp_path)
        reasons = [
            found["runtimes"]["ours"]["reason"]
            for _ in range(2)
            for found in bench.rows("a case", "layers", [[0]])
        ]
    assert reasons == ["the process ended with exit status 3: a word on standard error"] * 2


def test_a_failed_build_is_the_reason_its_runtime_gives(tmp_path):
    failing = {"stock-library": {"open": {"failure": "InternalError: Check failed"}}}
    [found] = measure(tmp_path, ["eager", "stock"], **failing)
    assert found["runtimes"]["stock"]["status"] == "failed"
    assert found["runtimes"]["stock"]["reason"] == "stock-library: InternalError: Check failed"
    assert len(found["runtimes"]["eager"]["turns"]) == 3


def test_without_data_nothing_is_measured(tmp_path):
    failing = {"data": {"open": {"failure": "ImportError: no transformers"}}}
    [found] = measure(tmp_path, ["eager", "ours"], **failing)
    reasons = {runtime: found["runtimes"][runtime]["reason"] for runtime in found["runtimes"]}
    assert reasons == dict.fromkeys(["eager", "ours", *PEAKS], "data: ImportError: no transformers")


@pytest.mark.parametrize("request_", ["check", "run"])
def test_slow_runtimes_are_capped_and_ended(tmp_path, request_):
    # The other requests answer at once; this one exceeds the cap.
    settings = Settings(turns=2, cap=3.0, build_cap=3.0)
    runtimes = ["eager", "ours"]
    with Workers(tmp_path / "logs", fakes(ours=script() | {request_: "hang"})) as workers:
        bench = Bench(workers, settings, runtimes, {}, tmp_path)
        [found] = bench.rows("a case", "layers", [[0]])
        states = {role: w.alive for (role, _), w in workers._workers.items()}
    assert found["runtimes"]["ours"]["status"] == "capped"
    assert found["runtimes"]["ours"]["reason"] == "not done within 3 s"
    assert (states["ours"], states["eager"]) == (False, True)
    assert len(found["runtimes"]["eager"]["turns"]) == 2


def test_a_runtime_that_has_used_its_time_takes_no_further_turn(tmp_path):
    [found] = measure(tmp_path, ["eager", "stock"], stock=script(10.0, 10.0, 10.0))
    # Two turns of 20 s wall time exceed the 30 s limit.
    assert found["runtimes"]["stock"]["turns"] == [(10.0, 20.0), (10.0, 20.0)]
    assert found["runtimes"]["stock"]["status"] == "ok"
    assert len(found["runtimes"]["eager"]["turns"]) == 3


# Workers.


def test_the_error_is_relative_to_the_largest_value():
    expected = np.array([1.0, -4.0], "float32")
    assert largest_error(expected, expected) == 0
    assert largest_error(np.array([1.0, -3.0], "float32"), expected) == 0.25
    assert np.isnan(largest_error(np.array([1.0, np.nan], "float32"), expected))
    with pytest.raises(ValueError, match=r"expected float32 of shape \(2,\), got float64"):
        largest_error(expected.astype("float64"), expected)
    with pytest.raises(ValueError, match=r"got float32 of shape \(1, 2\)"):
        largest_error(expected[None], expected)


def test_an_exception_is_the_reply_to_its_request():
    def answer(request):
        return {"half": 1 / request["number"]}

    requests = io.StringIO('{"number": 2}\n{"number": 0}\n{"number": 4}\n')
    replies = io.StringIO()
    serve(answer, requests, replies)
    assert [json.loads(line) for line in replies.getvalue().splitlines()] == [
        {"half": 0.5},
        {"failure": "ZeroDivisionError: division by zero"},
        {"half": 0.25},
    ]


def test_a_real_worker_measures_a_peak(tmp_path):
    worker = Worker("fma", [0], tmp_path / "log")
    try:
        job = Job("", tmp_path, 1, TARGET)
        assert worker.ask(job.request(), 60)["amount"] > 0
        checked = worker.ask({"do": "check", "seconds": 0.01}, 60)
        assert checked["error"] == 0
        assert 1 <= checked["runs"] <= MAX_RUNS
        took = worker.ask({"do": "run", "runs": 2}, 60)
        assert took["cpu"] > 0 and took["wall"] > 0
        with pytest.raises(Failure, match="ValueError: unknown request 'dance'"):
            worker.ask({"do": "dance"}, 60)
    finally:
        worker.end()
    assert not worker.alive


def test_a_worker_ends_with_its_driver(tmp_path):
    # The driver is killed; the worker waits for requests of this process, which has its error.
    driver = """
import os, signal, subprocess, sys
worker = [sys.executable, "-m", "benchmarks.worker", "data", "0"]
process = subprocess.Popen(worker, stdin=0, stdout=subprocess.PIPE, stderr=1)
os.write(1, process.stdout.readline() and b"%d\\n" % process.pid)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        assert process.stdout.readline().strip().isdigit()
        ready, _, _ = select.select([process.stdout], [], [], 20)
        assert ready and process.stdout.read() == b""  # no process has the stream open


def test_an_ended_worker_is_a_failure(tmp_path):
    worker = Worker("any", [0], tmp_path / "log", fakes(any={"open": "hang"}))
    with pytest.raises(Capped, match=r"not done within 0\.1 s"):
        worker.ask({"do": "open"}, 0.1)
    assert not worker.alive
    worker.end()


def test_workers_that_hold_too_much_memory_are_ended(tmp_path):
    with Workers(tmp_path / "logs", fakes()) as workers:
        worker = workers.get("any", [0])
        assert worker.ask({"do": "check"}, 30) == {"error": 0.0, "runs": 1}
        workers.trim(1 << 40)
        assert worker.alive and worker.memory() > 1 << 20
        workers.trim(1 << 20)
        assert not worker.alive and worker.memory() == 0
        assert workers.get("any", [0]).alive


@pytest.mark.parametrize("make", [fused_multiply_add, triad])
def test_the_kernels_of_the_peaks_are_correct(tmp_path, make):
    kernel = make(Job("", tmp_path, 2, TARGET))
    np.testing.assert_array_equal(kernel.run().numpy(), kernel.expected)


# One case end to end, without worker processes.


@pytest.mark.parametrize("runtime", ["eager", "ours", "ort"])
def test_a_case_is_built_and_run(tmp_path, runtime):
    pytest.importorskip("onnxruntime")
    job = Job("linear 128->512, batch 1", tmp_path, 1, TARGET)
    facts = BUILDERS["data"](job)
    weights = 128 * 512 + 512
    size = 4 * (128 + weights + 512)
    assert facts == {"flops": 2 * 128 * 512, "bytes": size, "tolerance": MAX_ERROR}
    if runtime == "ours":
        built = BUILDERS["ours-library"](job)
        assert built["size"] > 4 * weights
        assert built["build"] > 0
    elif runtime == "ort":
        BUILDERS["onnx"](job)
    runner = Runner(RUNTIMES[runtime]())
    assert runner.answer(job.request()) == {}
    assert runner.answer({"do": "check", "seconds": 0.001})["error"] < 1e-5
    assert set(runner.answer({"do": "run", "runs": 1})) == {"cpu", "wall"}
    assert runner.answer({"do": "close"}) == {}


def test_a_turn_has_the_first_core():
    cores, seen = os.sched_getaffinity(0), []
    runtime = SimpleNamespace(
        facts={}, open=lambda job: lambda: seen.append(os.sched_getaffinity(0))
    )
    runner = Runner(runtime)
    runner.answer(Job("any", Path(), len(cores), TARGET).request())
    runner.answer({"do": "run", "runs": 2})
    assert seen == [{min(cores)}] * 2
    assert os.sched_getaffinity(0) == cores


def test_rest_waits_for_threads_that_spin(monkeypatch):
    def spin() -> None:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass

    with ThreadPoolExecutor(1) as pool:
        spinning = pool.submit(spin)
        assert rest() and spinning.done()
        spinning = pool.submit(spin)
        monkeypatch.setattr("benchmarks.worker.MAX_REST_S", 0.02)
        assert not rest() and not spinning.done()


def test_a_wrong_library_has_an_error(tmp_path):
    job = Job("linear 128->512, batch 1", tmp_path, 1, TARGET)
    BUILDERS["data"](job)
    expected = np.load(tmp_path / "expected.npy")
    np.save(tmp_path / "expected.npy", expected + np.abs(expected).max())
    runner = Runner(RUNTIMES["eager"]())
    runner.answer(job.request())
    assert 0.4 < runner.answer({"do": "check", "seconds": 0.001})["error"] < 1.1


# Reports.


def test_medians_and_ratios_are_of_turns():
    found = row(eager=entry(1.0, 4.0, 2.0), ours=entry(2.0, 4.0, 6.0))
    assert report.time_of(found, "eager") == 2.0
    assert report.time_of(found, "eager", report.WALL) == 4.0
    assert report.ratio(found, "ours") == 2.0  # of 2, 1 and 3
    assert report.ratio(found, "ort") is None
    assert report.time_of(row(threads=2, eager=entry(1.0)), "eager") == 2.0


def test_a_runtime_with_fewer_turns_is_compared_over_those_turns():
    found = row(eager=entry(1.0, 1.0, 100.0), stock=entry(3.0, 5.0))
    assert report.ratio(found, "stock") == 4.0


def test_capped_rows_leave_the_mean_and_are_counted():
    rows = [
        row("a", eager=entry(1.0), stock=entry(2.0)),
        row("b", eager=entry(1.0), stock=entry(8.0)),
        row("c", eager=entry(1.0), stock=entry(status="capped", reason="not done within 60 s")),
        row("d", eager=entry(1.0), stock=entry(status="wrong", reason="error 1")),
    ]
    found = report.mean(rows, "stock")
    assert found.value == pytest.approx(4.0)
    assert (found.rows, found.left_out) == (2, {"capped": 1, "wrong": 1})
    assert tables.cells(rows)[-1] == ["geometric mean", "", "4 (2 rows, 1 capped, 1 wrong)"]
    assert [line[-1] for line in tables.cells(rows)[:-1]] == ["2", "8", "capped", "wrong"]
    assert "c, one core: TVM capped: not done within 60 s" in tables.remarks(rows)


def test_the_fraction_is_of_the_peak_measured_in_the_row():
    peaks = {"fma": entry(0.5, amount=3e9), "triad": entry(1.0, amount=8e9)}
    products = row(flops=2e9, ours=entry(1.0), **peaks)
    assert report.peak_fraction(products, "ours") == pytest.approx(1 / 3)
    memory = row(group="memory", size=4e9, ours=entry(2.0), **peaks)
    assert report.peak_fraction(memory, "ours") == pytest.approx(0.25)
    assert report.peak_fraction(row(size=4e9, ours=entry(2.0), **peaks), "ours") is None
    [peak, bandwidth] = tables.peaks([products])
    assert peak == "FMA peak, one core: 6 GFLOP/s (6 to 6 over 1 row)"
    assert bandwidth.startswith("memory bandwidth, one core: 8 GB/s")


def test_rows_that_are_behind_are_named():
    found = row(eager=entry(1.0), ort=entry(0.5), ours=entry(0.7))
    assert report.ratio_to_faster(found, "ours") == pytest.approx(1.4)
    ahead = row(eager=entry(0.6), ort=entry(1.0), ours=entry(0.6))
    assert report.ratio_to_faster(ahead, "ours") == 1.0
    assert tables.remarks([ahead]) == []
    assert tables.remarks([found]) == [
        "a, one core: tvm-fixes takes 1.4 times as long as the faster of PyTorch and ONNX Runtime"
    ]


def test_quantized_rows_are_compared_with_onnx_runtime():
    times = {"eager": entry(1.5), "ours": entry(1.0), "ort-quantized": entry(0.5, reason="error 1")}
    found = row(
        group="int8", flops=1, **times, **{"ours-quantized": entry(0.8)}, fma=entry(1, amount=1)
    )
    assert report.ratio(found, "ours-quantized") == pytest.approx(1.6)
    assert report.ratio(found, "eager") == pytest.approx(3.0)
    assert report.ratio_to_faster(found, "ours-quantized") == pytest.approx(1.6)
    heads = ["case", "ONNX Runtime quantized ms", "PyTorch ratio", "tvm-fixes ratio"]
    heads += ["tvm-fixes quantized ratio", "tvm-fixes quantized ratio to faster"]
    assert [head.replace("\n", " ") for head in tables.header([found])] == heads
    assert tables.cells([found])[0] == ["a", "500", "3", "2", "1.6", "1.6"]
    assert tables.remarks([found]) == [
        "a, one core: tvm-fixes quantized takes 1.6 times as long as the faster of PyTorch and "
        "ONNX Runtime",
        "a, one core: ONNX Runtime quantized inaccurate: error 1",
    ]


def test_builds_are_compared_once_a_case():
    runtimes = {"ours": entry(1.0, build=3.0), "stock": entry(1.0, build=2.0)}
    rows = [row("a", threads=threads, **runtimes) for threads in (1, 2)]
    assert report.build_ratios(rows) == [1.5]
    assert report.build_ratios([row(ours=entry(1.0, build=3.0))]) == []


def test_the_page_and_the_values_say_the_same():
    rows = [row(eager=entry(0.001), ours=entry(0.0005)), row("b", "gemm", 2, eager=entry(1.0))]
    page = tables.markdown(rows, "How it was measured.")
    assert page.startswith("How it was measured.\n")
    assert "### layers, one core: CPU time" in page
    assert "| case | PyTorch ms | tvm-fixes ratio | tvm-fixes ratio to faster |" in page
    assert "| a | 1 | 0.5 | 0.5 |" in page
    assert "### gemm, 2 cores: wall time" in page
    values = report.summary(rows, {"cpu": "a CPU"})
    assert values["identity"] == {"cpu": "a CPU"}
    assert values["rows"][0]["runtimes"]["ours"]["ratio"] == 0.5
    assert values["means"]["layers, one core: CPU time"]["ours"]["value"] == pytest.approx(0.5)
    json.dumps(values, allow_nan=False)
    assert [table.row_count for table in tables.tables(rows)] == [2, 2]


# Runs.


def test_a_store_resumes_an_interrupted_run(tmp_path):
    path = tmp_path / "rows"
    now, then = {"settings": {"turns": 2}}, {"settings": {"turns": 3}}
    for run_identity, case in ((then, "b"), (now, "a"), (now, "c")):
        Store(path, run_identity).add({"case": case, "threads": 1})
    with path.open("a") as file:
        file.write('{"key": "now", "case": "d"')  # cut off
    store = Store(path, now)
    assert ([found["case"] for found in store.rows], store.others) == (["a", "c"], 1)
    assert [store.has("a", 1), store.has("a", 2), store.has("b", 1)] == [True, False, False]
    store.add({"case": "d", "threads": 2})
    assert Store(path, now).has("d", 2)
    last = Store(path)
    assert (last.run_identity, len(last.rows)) == (now, 3)


def test_a_report_without_rows_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="rows: no results found"):
        Store(tmp_path / "rows")


def run(monkeypatch, out, *options: str, **scripts: dict[str, object]) -> str:
    monkeypatch.setattr(speed, "Workers", partial(Workers, command=fakes(**scripts)))
    parser = argparse.ArgumentParser()
    speed.add_arguments(parser)
    console = Console(file=io.StringIO(), width=200)
    given = ["--out", str(out), "--threads", "one", "--turns", "2", "--cases", "softmax 12"]
    given += ["--groups", "layers"]
    speed.main(parser.parse_args([*given, *options]), console)
    return " ".join(console.file.getvalue().split())


def test_a_run_is_written_and_not_repeated(tmp_path, monkeypatch):
    faulty = {"stock": {"open": {"failure": "RuntimeError: no"}}}
    said = run(monkeypatch, tmp_path, ours=script(0.5, 0.5), **faulty)
    assert "softmax 12x197x197, 1 thread(s): PyTorch 1e+03 ms; torch.compile 1" in said
    assert "TVM failed, tvm-fixes 0.5" in said
    assert "TVM failed: RuntimeError: no" in said
    rows = (tmp_path / "results.jsonl").read_text()
    assert rows.count("softmax") == 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["rows"][0]["runtimes"]["ours"]["ratio"] == 0.5
    assert "| softmax 12x197x197 |" in (tmp_path / "summary.md").read_text()

    again = run(monkeypatch, tmp_path)
    assert "softmax 12x197x197: 1 row(s) measured before" in again
    assert (tmp_path / "results.jsonl").read_text() == rows

    otherwise = run(monkeypatch, tmp_path, "--runtimes", "eager", "ours")
    assert "ignored 1 rows in" in otherwise and "with other settings or sources" in otherwise
    assert (tmp_path / "results.jsonl").read_text().count("softmax") == 2

    run(monkeypatch, tmp_path, "--fresh")
    assert (tmp_path / "results.jsonl").read_text().count("softmax") == 1


def test_a_report_measures_nothing(tmp_path, monkeypatch):
    run(monkeypatch, tmp_path, ours=script(0.5, 0.5))
    rows = (tmp_path / "results.jsonl").read_text()
    (tmp_path / "summary.md").unlink()
    # The last run is shown, regardless of other options.
    said = run(monkeypatch, tmp_path, "--report", "--cap", "7")
    assert (tmp_path / "results.jsonl").read_text() == rows
    assert "2 turns of about 50 ms" in said and "within 60 s is capped" in said
    text = (tmp_path / "summary.md").read_text()
    assert "| softmax 12x197x197 |" in text
    run(monkeypatch, tmp_path, "--report", "--table", str(tmp_path / "speed.md"))
    assert (tmp_path / "speed.md").read_text() == text


def test_quantized_cases_have_runtimes_of_their_own(tmp_path, monkeypatch):
    options = ("--groups", "int8", "--cases", "depthwise 256, 3x3 s2")
    said = run(monkeypatch, tmp_path, *options, **{"ours-quantized": script(0.5, 0.5)})
    assert "3x3 s2, 56x56, int8, 1 thread(s): ONNX Runtime quantized 1e+03 ms; PyTorch 1" in said
    assert "TVM quantized 1, tvm-fixes quantized 0.5" in said
    [row] = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert list(row["runtimes"]) == ["eager", "compiled", "ours", *QUANTIZED_RUNTIMES]


def test_no_case_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no case of gemm has 'softmax 12' in its name"):
        run(monkeypatch, tmp_path, "--groups", "gemm")


def test_the_plot_is_a_picture_or_a_sentence(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    run(monkeypatch, tmp_path)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "plot.png").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "No plot: " in run(monkeypatch, tmp_path)
    assert not (tmp_path / "plot.png").exists()


def test_every_runtime_has_a_name():
    assert set(RUNTIMES) == {*RUNTIME_NAMES, *PEAKS}
    assert {need for needs in NEEDS.values() for need in needs} == set(BUILDERS) - {"data"}
    shown = {name for group in GROUPS for name in measured(group, list(RUNTIME_NAMES))}
    assert shown == set(RUNTIME_NAMES)


if __name__ == "__main__":
    tvm.testing.main()

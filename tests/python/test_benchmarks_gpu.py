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
"""benchmarks.gpu, without a GPU."""

import io
import sys
import zlib

import pytest
import torch
import tvm.testing
from rich.console import Console

from benchmarks.gpu import build, report, run, sanitize
from benchmarks.gpu.cases import DTYPES, GPU_CASES, GROUPS, TOLERANCES

PRODUCT = "product 37x65 65x51 nn, float16"


def test_each_case_has_a_group_a_dtype_and_a_file():
    assert {case.group for case in GPU_CASES.values()} == set(GROUPS)
    assert {case.dtype for case in GPU_CASES.values()} == set(DTYPES) == set(TOLERANCES)
    assert len({case.file for case in GPU_CASES.values()}) == len(GPU_CASES)


@pytest.mark.parametrize("name", ["linear 128x256x512, bfloat16", "small BERT, float16"])
def test_a_case_is_the_same_each_time_and_compresses(name):
    (module, inputs), (again, others) = (GPU_CASES[name].make() for _ in range(2))
    for one, other in zip(
        [*module.parameters(), *inputs], [*again.parameters(), *others], strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        if one.is_floating_point():
            assert one.dtype == DTYPES[GPU_CASES[name].dtype]
    largest = max(module.parameters(), key=lambda parameter: parameter.numel())
    data = largest.float().numpy().tobytes()
    assert len(zlib.compress(data)) < len(data) / 3


def test_libraries_are_built_once(tmp_path, monkeypatch):
    def fake(case, variant, arch, folder):
        if variant == "stock":
            raise ValueError("no")
        (folder / case.library(variant)).write_bytes(b"library")

    monkeypatch.setattr(build, "_build", fake)
    console = Console(file=io.StringIO())
    cases = [GPU_CASES[PRODUCT]]
    for _ in range(2):
        build.build(cases, ["ours", "stock"], "sm_90", tmp_path, console)
    rows = {row["variant"]: row for row in build.read(tmp_path)}
    assert rows["ours"]["bytes"] == 7
    assert rows["stock"]["failure"] == "ValueError: no"
    assert len((tmp_path / build.INDEX).read_text().splitlines()) == 2


def test_a_process_that_ends_early_is_replaced(tmp_path, monkeypatch):
    """The library at fault is skipped the next time, and a case without an answer is a crash."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys\n"
        "for name, failed in json.loads(sys.argv[-1]).items():\n"
        "    if name == 'crashes': sys.exit('broken')\n"
        "    if name == 'fails' and not failed:\n"
        "        print(json.dumps({'case': name, 'variant': 'ours', 'failure': ''}), flush=True)\n"
        "        sys.exit(1)\n"
        "    print(json.dumps({'case': name, 'variant': 'libraries', 'error': 0}))\n"
        "    print(json.dumps({'case': name, 'last': True}), flush=True)\n"
    )
    executable = tmp_path / "python"
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    executable.chmod(0o755)
    monkeypatch.setattr(run.sys, "executable", str(executable))
    rows = run._in_processes("check", ["good", "fails", "crashes", "last"], tmp_path)
    told = [(row["case"], row.get("variant"), "failure" in row, "crash" in row) for row in rows]
    assert ("fails", "ours", True, False) in told and ("fails", "libraries", False, False) in told
    assert [row["case"] for row in rows if row.get("last")] == ["good", "fails", "last"]
    assert [row["crash"] for row in rows if "crash" in row] == ["status 1: broken"]


ROWS = [
    {"peaks": {"copy": 1e12}, "device": "GPU"},
    {"case": PRODUCT, "variant": "ours", "limit": 0.01, "error": 0.001, "equal": True},
    {"case": "add 64 MiB, float32", "variant": "eager", "seconds": 2e-3},
    {"case": "add 64 MiB, float32", "variant": "ours", "seconds": 1e-3},
    {"case": "add 64 MiB, float32", "bytes": 10**9, "last": True},
]


def shown(rows):
    console = Console(file=io.StringIO(), width=200)
    return report.show(rows, console), console.file.getvalue()


def test_the_report():
    status, text = shown(ROWS)
    assert status == 0
    assert "ours: 1 of 1 right" in text and "2.0000" in text and "0.50" in text


@pytest.mark.parametrize(
    "row, said",
    [
        ({"case": PRODUCT, "variant": "ours", "limit": 0.01, "error": 0.5, "equal": False}, "0.5"),
        ({"case": PRODUCT, "variant": "ours", "limit": 0.01, "failure": "ValueError: x"}, "x"),
        ({"case": PRODUCT, "crash": "status 1: broken"}, "broken"),
    ],
)
def test_a_fault_is_shown_and_fails(row, said):
    status, text = shown([*ROWS, row])
    assert status == 1 and said in text and PRODUCT in text


@pytest.mark.parametrize(
    "output, status, failure",
    [
        ("========= ERROR SUMMARY: 0 errors", 0, None),
        (
            "========= Invalid __global__ write of size 4 bytes\n"
            "=========     at main_kernel+0x10\n========= ERROR SUMMARY: 2 errors",
            0,
            "Invalid __global__ write of size 4 bytes",
        ),
        ("========= RACECHECK SUMMARY: 1 hazard displayed (1 error)", 0, "1 hazard"),
        ("", 3, "status 3"),
    ],
)
def test_the_sanitizer(tmp_path, monkeypatch, output, status, failure):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / GPU_CASES[PRODUCT].library("ours")).touch()
    [[row]] = sanitize.sanitize([PRODUCT], tmp_path, "memcheck", 1)
    assert (row["case"], row["variant"]) == (PRODUCT, "ours")
    assert failure in row["failure"] if failure else "failure" not in row
    status, text = shown([*ROWS, row])
    assert status == bool(failure) and "memcheck of ours" in text


def test_the_sanitizer_finds_the_library_at_fault(tmp_path, monkeypatch):
    products = [case for case in GPU_CASES if case.startswith("product")][:7]
    for product in products:
        (tmp_path / GPU_CASES[product].library("ours")).touch()
    tool = tmp_path / "compute-sanitizer"
    faulty = GPU_CASES[products[4]].library("ours")
    tool.write_text(
        f"#!/bin/sh\necho $@ >> {tmp_path}/runs\n"
        f'case "$@" in *{faulty}*) n=1;; *) n=0;; esac\n'
        'echo "========= ERROR SUMMARY: $n errors"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    [rows] = sanitize.sanitize(products, tmp_path, "memcheck", 1)
    assert [row["case"] for row in rows] == products
    assert [row["case"] for row in rows if "failure" in row] == [products[4]]
    assert len((tmp_path / "runs").read_text().splitlines()) == 7


def test_without_the_sanitizer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / GPU_CASES[PRODUCT].library("ours")).touch()
    with pytest.raises(SystemExit, match="compute-sanitizer"):
        list(sanitize.sanitize([PRODUCT], tmp_path, "memcheck", 1))


def test_a_fault_of_tvm_alone_does_not_fail():
    row = {"case": PRODUCT, "variant": "stock", "limit": 0.01, "failure": "ValueError: x"}
    assert shown([*ROWS, row])[0] == 0


if __name__ == "__main__":
    tvm.testing.main()

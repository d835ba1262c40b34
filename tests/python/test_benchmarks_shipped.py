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
"""benchmarks.shipped, without a network: the tool's logic."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tvm.testing

from benchmarks.shipped import __main__ as command
from benchmarks.shipped import (
    data,
    export_tables,
    export_torch,
    fetch,
    find,
    judge,
    run,
    table,
    worker,
)
from benchmarks.shipped.exports import EXPORTS
from benchmarks.shipped.models import Model, Package
from benchmarks.shipped.packages import MODELS, PACKAGES
from tvm_fixes.errors import UsageError

OUTCOME = run.Outcome("net", "pkg 1", "vision", run.RIGHT, "", 2.0, 2**20, 1000, 2000, "abc")


def package(path, content, name="pkg-1-py3-none-any.whl"):
    """A package in a cache at `path`, with files by name."""
    file = path / "packages" / name
    file.parent.mkdir()
    if name.endswith(".whl"):
        with zipfile.ZipFile(file, "w") as archive:
            for member, text in content.items():
                archive.writestr(member, text)
    else:
        with tarfile.open(file, "w:gz") as archive:
            for member, text in content.items():
                info = tarfile.TarInfo(member)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
    checksum = hashlib.sha256(file.read_bytes()).hexdigest()
    return Package("pypi", "pkg", "1", name, checksum, "MIT")


def test_names_and_packages_are_distinct():
    names = [model.name for model in (*MODELS, *EXPORTS)]
    assert len(set(names)) == len(names) > 100
    assert len(EXPORTS) >= 30
    assert {model.package.name for model in MODELS} == set(PACKAGES)
    assert all(len(found.sha256) == 64 for found in PACKAGES.values())


@pytest.mark.parametrize("model", [*MODELS, *EXPORTS], ids=lambda model: model.name)
def test_inputs_are_repeatable(model):
    for case in model.cases:
        for make in case.inputs.values():
            one, other = (make(np.random.default_rng(3)) for _ in range(2))
            np.testing.assert_array_equal(one, other)
            assert np.isfinite(one.astype("float64")).all()
        assert set(case.carry) <= set(case.inputs)


def test_recipes():
    rng = np.random.default_rng(0)
    image = data.picture(2, 3, 20, 30, low=-1)(rng)
    assert (image.shape, image.dtype, image.min() >= -1, image.max() <= 1) == (
        (2, 3, 20, 30),
        "float32",
        True,
        True,
    )
    assert image.std() > 0.1
    assert data.picture(1, 20, 30, 3, channels_last=True)(rng).shape == (1, 20, 30, 3)
    assert data.sound(2, 400)(rng).shape == (2, 400)
    assert data.one_hot(2, 5, 7)(rng).sum() == 10
    np.testing.assert_array_equal(data.counting(1, 3)(rng), [[0, 1, 2]])


@pytest.mark.parametrize("name", ["pkg-1-py3-none-any.whl", "pkg-1.tgz"])
def test_models_are_taken_out_of_packages(tmp_path, name):
    found = package(tmp_path, {"a/net.onnx": b"weights"}, name)
    model = Model("net", "vision", (), found, "a/net.onnx")
    assert fetch.take_out(model, tmp_path).read_bytes() == b"weights"
    missing = replace(model, name="other", path="a/no.onnx")
    with pytest.raises(UsageError, match=r"a/no\.onnx"):
        fetch.take_out(missing, tmp_path)


def test_chunks_are_joined(tmp_path):
    index = {"/models/small": {"chunks": [{"hash": "x"}, {"hash": "y"}]}}
    content = {"d/index.json": json.dumps(index).encode(), "d/x": b"one ", "d/y": b"two"}
    model = Model("net", "", (), package(tmp_path, content), "d/index.json", "/models/small")
    assert fetch.take_out(model, tmp_path).read_bytes() == b"one two"


def test_checksums_are_checked(tmp_path):
    found = replace(package(tmp_path, {"net.onnx": b""}), sha256="0" * 64)
    with pytest.raises(UsageError, match=r"SHA-256.*expected 0000"):
        fetch.fetch(found, tmp_path)


def test_options_of_pip_name_the_file():
    assert fetch._kind_of_file("a-1.tar.gz") == ["--no-binary", ":all:"]
    assert fetch._kind_of_file("a-1-py3-none-any.whl") == ["--only-binary", ":all:"]
    options = fetch._kind_of_file("a-1-py3-none-linux_x86_64.manylinux_2_28_x86_64.whl")
    assert options[2:] == ["--platform=linux_x86_64", "--platform=manylinux_2_28_x86_64"]


def test_cache_is_outside_the_repository(monkeypatch, tmp_path):
    monkeypatch.delenv(fetch.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.default_cache() == tmp_path / "tvm-fixes" / "shipped"
    monkeypatch.setenv(fetch.CACHE_VARIABLE, "/elsewhere")
    assert str(fetch.default_cache()) == "/elsewhere"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value, ""),
        (lambda value: value + 5e-5, ""),
        (lambda value: value + 1e-2, "error 0.01 of 1"),
        (lambda value: np.full_like(value, np.nan), "NaN"),
        (lambda value: value[:1], "expected float32"),
        (lambda value: value.astype("float64"), "expected float32"),
    ],
)
def test_errors_are_judged(change, message):
    reference = np.linspace(-1, 1, 20).astype("float32")
    found = judge.problem([change(reference)], [reference], [[reference]], ["y"])
    assert bool(found) == bool(message)
    assert message in found


@pytest.mark.parametrize(
    ("dtypes", "share"),
    [
        ([], 1e-4),
        ([("float32", 9), ("float16", 2)], 1e-4),
        ([("float32", 2), ("float16", 9)], 4e-3),
        ([("int8", 9), ("float16", 2)], 1e-4),
        ([("bfloat16", 9)], 3e-2),
    ],
)
def test_errors_are_judged_by_the_dtype_of_weights(tmp_path, dtypes, share):
    weights = [
        onnx.helper.make_tensor(
            f"w{place}",
            getattr(onnx.TensorProto, dtype.upper().replace("FLOAT32", "FLOAT")),
            [n],
            [0] * n,
        )
        for place, (dtype, n) in enumerate(dtypes)
    ]
    graph = onnx.helper.make_graph([], "g", [], [], weights)
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    assert worker.share_of(tmp_path / "model.onnx") == share
    value = np.linspace(-1, 1, 20).astype("float32")
    moved = value + np.float32(1e-3)
    assert bool(judge.problem([moved], [value], [[value]], ["y"], share)) == (share < 1e-3)


def test_an_unsure_reference_allows_more():
    reference = np.linspace(-1, 1, 20).astype("float32")
    other = [[reference + np.float32(0.01)]]
    assert not judge.problem([reference - np.float32(0.03)], [reference], other, ["y"])
    assert "own: 0.01" in judge.problem([reference + np.float32(0.05)], [reference], other, ["y"])


def test_integers_are_judged_by_number():
    reference = np.arange(20)
    wrong = reference.copy()
    wrong[3] = 0
    assert judge.problem([wrong], [reference], [[reference]], ["y"]).startswith("output 'y': 1 of")
    assert not judge.problem([wrong], [reference], [[wrong]], ["y"])


def test_states_are_carried():
    case = data.Case({"x": data.full(1, value=2), "h": data.full(1, value=0)}, 4, {"h": "sum"})
    results = worker.steps(case, lambda feed: [-feed["x"], feed["h"] + feed["x"]], ["y", "sum"])
    assert [float(step[1][0]) for step in results] == [2, 4, 6, 8]


def test_moved_inputs_stay_near():
    case = data.Case({"x": data.full(100, value=3), "n": data.full(2, value=1, dtype="int64")})
    [[x, n]] = worker.steps(case, lambda feed: [feed["x"], feed["n"]], ["x", "n"], moved=1)
    scalar = data.Case({"x": data.full(value=3)})
    [[moved]] = worker.steps(scalar, lambda feed: [feed["x"]], ["x"], moved=1)
    assert isinstance(moved, np.ndarray)
    assert 0 < np.abs(x - 3).max() < 1e-6
    [[far, _]] = worker.steps(case, lambda feed: [feed["x"], feed["n"]], ["x", "n"], moved=8)
    assert 1e-6 < np.abs(far - 3).max() < 4e-6
    np.testing.assert_array_equal(n, [1, 1])


@pytest.mark.parametrize(("error", "is_right"), [(1.0, True), (9.0, False)])
def test_weights_are_moved_where_inputs_cannot(tmp_path, error, is_right):
    """All products are ties, so that rounding decides how they are quantized."""
    path = tmp_path / "net.onnx"
    onnx.save(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 19]>
        net (int64[4] x) => (float[4] y) <float[4] w = {0.5, 0.5, 0.5, 0.5}, float one = {1}> {
            number = Cast <to = 1> (x)
            product = Mul (number, w)
            bytes = QuantizeLinear (product, one)
            y = DequantizeLinear (bytes, one)
        }"""),
        path,
    )
    case = data.Case({"x": data.full(4, value=41, dtype="int64")})
    model = SimpleNamespace(name="net", cases=(case,))
    found = worker.check(model, path, lambda feed: [np.full(4, 20 + error, "float32")])
    assert (found == "") == is_right, found


def test_bfloat16_is_kept():
    value = data.in_bfloat16(data.normal(3, 4))(np.random.default_rng(0))
    tensor = data.to_torch(value)
    assert (value.dtype.name, str(tensor.dtype)) == ("bfloat16", "torch.bfloat16")
    again = data.from_torch(tensor)
    assert again.dtype == value.dtype
    np.testing.assert_array_equal(again, value)
    assert judge.is_float(value)
    assert not judge.problem([value], [value], [], ["y"])
    assert judge.problem([-value], [value], [], ["y"])


def test_maps_become_arrays():
    scores = worker.as_array([{"b": 0.75, "a": 0.25}, {"a": 0.5, "b": 0.5}])
    np.testing.assert_array_equal(scores, [[0.25, 0.75], [0.5, 0.5]])
    assert scores.dtype == "float32"


@pytest.mark.parametrize("by_name", [True, False])
def test_inputs_by_name_or_position(tmp_path, monkeypatch, by_name):
    names = ["b", "a"] if by_name else ["x", "y"]
    loaded = SimpleNamespace(
        inputs=[SimpleNamespace(name=name) for name in names], outputs=["y"], run=np.subtract
    )
    monkeypatch.setattr(worker.CompiledModel, "load", lambda _: loaded)
    call = worker.compiled(tmp_path, by_name=by_name)
    [result] = call({"a": np.float32(5), "b": np.float32(3)})
    assert result == (-2 if by_name else 2)


def test_symbolic_axes_of_parameters():
    class Module:
        def named(self, a, b): ...

        def all(self, *inputs): ...

        def some(self, a, *inputs): ...

    dynamic = {"a": {0: "batch"}, "b": {0: "batch", 1: "length"}}

    def names(value):
        if isinstance(value, tuple):
            return tuple(map(names, value))
        return value and {axis: dim.__name__ for axis, dim in value.items()}

    def dims(method):
        module = SimpleNamespace(forward=getattr(Module(), method))
        return names(export_torch._dims(dynamic, ["a", "b", "c"], module))

    a, b = dynamic["a"], dynamic["b"]
    assert [*map(dims, ("named", "all", "some"))] == [(a, b, None), ((a, b, None),), (a, (b, None))]


def test_exports_are_made_once(tmp_path, monkeypatch):
    def run(command, **_):
        Path(command[4]).write_bytes(b"model")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    monkeypatch.setattr(fetch, "_libraries", lambda cache: cache)
    model = Model("net", "", (), make=print)
    assert fetch.take_out(model, tmp_path).read_bytes() == b"model"
    monkeypatch.undo()
    assert fetch.take_out(model, tmp_path).read_bytes() == b"model"


def test_predictors_have_features():
    assert export_tables.features("iris") == 4
    table_models = [model for model in EXPORTS if " of " in model.kind]
    assert {next(iter(model.cases[0].inputs)) for model in table_models} == {"X", "input"}


def ended(status, output="", errors=""):
    return run.Ended(status, output, errors, 1.0, 1)


@pytest.mark.parametrize(
    ("process", "saved", "lacks", "expected"),
    [
        (ended(0), True, "", (run.RIGHT, "")),
        (ended(0), True, "strings", (run.FAILED, "expected an error that names strings")),
        (
            ended(1, "", "tvm-fixes: error: no strings"),
            False,
            "strings",
            (run.REJECTED, "no strings"),
        ),
        (ended(1, "", "tvm-fixes: error: bad"), False, "strings", (run.FAILED, "bad")),
        (ended(1, "", "x\ntvm-fixes: error: bad\ny"), False, "", (run.FAILED, "bad")),
        (
            ended(1, "not saved   outputs differ\n│ y │ (2,) │ 4 differ │"),
            False,
            "",
            (run.NOT_SAVED, "y 4 differ"),
        ),
        (ended(None), False, "", (run.ENDED, "compile: out of time")),
        (ended(-11), False, "", (run.ENDED, "compile: SIGSEGV")),
    ],
)
def test_compilations_are_judged(process, saved, lacks, expected):
    assert run.judge_compilation(process, lacks, saved=saved) == expected


def test_runs_are_judged():
    times = {"ms": 1.0, "reference_ms": 2.0, "ratio": 0.5}
    assert run.judge_run(ended(0, json.dumps({"wrong": ""} | times))) == (run.RIGHT, "", times)
    assert run.judge_run(ended(0, 'noise\n{"wrong": "y"}')) == (run.WRONG, "y", {})
    assert run.judge_run(ended(1, "", "ValueError: no"))[:2] == (run.WRONG, "run: ValueError: no")
    assert run.judge_run(ended(-9))[0] == run.ENDED


def test_processes_are_measured_and_ended(tmp_path):
    python = partial(run.run_process, logs=tmp_path / "log")
    work = "x = bytearray(100 << 20); sum(range(3_000_000)); print('done')"
    found = python([sys.executable, "-c", work], limit=60)
    assert (found.status, found.output) == (0, "done\n")
    assert found.memory_bytes > 100 << 20
    assert found.seconds > 0.01
    assert python([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.2).status is None


def test_results_are_kept(tmp_path):
    path = tmp_path / "results" / "r.jsonl"
    table.Results(path).add(OUTCOME)
    table.Results(path).add(replace(OUTCOME, name="other"))
    table.Results(path).add(replace(OUTCOME, outcome=run.WRONG))
    results = table.Results(path)
    assert results.get("net").outcome == run.WRONG
    assert results.get("other") == replace(OUTCOME, name="other")
    assert results.get("absent") is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["bad", "new", "old"]),
        (["--failed"], ["bad", "new"]),
        (["--again"], ["bad", "new", "old", "known"]),
        (["--only", "know"], ["known"]),
        (["--only", "b.d", "old"], ["bad", "old"]),
    ],
)
def test_interrupted_runs_resume(tmp_path, options, expected):
    everything = [Model(name, "", (), maker="m") for name in ("bad", "new", "old", "known")]
    results = table.Results(tmp_path / "r.jsonl")
    results.add(replace(OUTCOME, name="bad", outcome=run.FAILED, revision="1"))
    results.add(replace(OUTCOME, name="old", revision="0"))
    results.add(replace(OUTCOME, name="known", revision="1"))
    parser = command.argparse.ArgumentParser()
    command.add_arguments(parser)
    chosen = command.chosen(everything, results, parser.parse_args(options), "2")
    if "--again" in options or "--only" in options:
        assert [model.name for model in chosen] == expected
    else:
        assert [model.name for model in chosen] == [*expected, *(["known"] if not options else [])]
    again = command.chosen(everything, results, parser.parse_args([]), "1")
    assert [model.name for model in again] == ["new", "old"]


def test_unknown_models_are_rejected(capsys):
    with pytest.raises(SystemExit) as error:
        command.main(["--only", "nothing-like-this", "--no-table"])
    assert error.value.code == 2
    assert "no such model or package" in capsys.readouterr().err


@pytest.mark.parametrize(("outcome", "status"), [(run.RIGHT, 0), (run.FAILED, 1)])
def test_exit_status_and_table(tmp_path, monkeypatch, capsys, outcome, status):
    measured = replace(OUTCOME, name=MODELS[0].name, outcome=outcome, ratio=0.5, ms=1.0)
    monkeypatch.setattr(command, "measure", lambda *_: measured)
    options = ["--cache", str(tmp_path), "--table", str(tmp_path), "--only", MODELS[0].name + "$"]
    assert command.main(options) == status
    assert f"[1/1] {MODELS[0].name} … {outcome}" in capsys.readouterr().out
    page = (tmp_path / "shipped_models.md").read_text()
    assert f"1 models: 1 {outcome}. Geometric mean of the ratios: 0.50" in page
    assert f"| {MODELS[0].name} | pkg 1 | vision | {outcome} | 2 | 1 MiB |" in page
    assert PACKAGES["silero-vad"].sha256 in page


def test_a_model_that_cannot_be_made_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    def measure(model, *_):
        if model.name == MODELS[0].name:
            raise UsageError(f"{model.name}: cannot be made")
        return replace(OUTCOME, name=model.name)

    monkeypatch.setattr(command, "measure", measure)
    names = [f"^{model.name}$" for model in MODELS[:2]]
    assert command.main(["--cache", str(tmp_path), "--no-table", "--only", *names]) == 1
    assert "cannot be made\n[2/2]" in capsys.readouterr().out


def test_booleans_become_integers_of_attributes():
    with export_tables._integers_for_booleans():
        made = onnx.helper.make_node("Op", [], [], flags=[np.True_, 0, np.uint32(2)], axis=1)
    assert {a.name: list(a.ints) or a.i for a in made.attribute} == {"flags": [1, 0, 2], "axis": 1}


def test_page_shows_revisions_that_differ_and_what_is_missing():
    page = table.markdown([OUTCOME], {}, 1, exports=True)
    assert "| revision |" not in page
    assert "not measured" not in page
    page = table.markdown([OUTCOME, replace(OUTCOME, revision="def")], {}, 5, exports=True)
    assert "2 right. 3 more are not measured yet." in page
    assert "| revision |" in page
    assert "| def |" in page


def test_summary_names_slow_models():
    slow = replace(OUTCOME, name="slow", ratio=2.0)
    text = table.summary([replace(OUTCOME, ratio=0.5), slow, replace(OUTCOME, outcome=run.FAILED)])
    assert text.startswith("3 models: 2 right, 1 failed. Geometric mean of the ratios: 1.00;")
    assert text.endswith("Above 1.3: slow.")


def test_models_by_name():
    assert find(MODELS[0].name) is MODELS[0]
    with pytest.raises(KeyError):
        find("nothing like this")


if __name__ == "__main__":
    tvm.testing.main()

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
"""Models from the cache: the same outputs, compared again, and compiled again when in doubt."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import tvm.testing
from torch import nn

import tvm_fixes
from helpers.grids import from_tier
from helpers.models import conv_net, onnx_conv
from tvm_fixes.compiler import steps
from tvm_fixes.compiler.cache import eviction, files, place
from tvm_fixes.compiler.cache.entries import read_entry
from tvm_fixes.runtime import CompiledModel
from tvm_fixes.torch import kernels, partition
from tvm_fixes.torch.backend import Backend
from tvm_fixes.torch.options import Options
from tvm_fixes_cli import main


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TVM_FIXES_CACHE", str(tmp_path / "cache"))
    files.warn_once.cache_clear()
    torch._dynamo.reset()
    with torch.no_grad():
        yield tmp_path / "cache"


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype("float32")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An ONNX file that has not changed for a while, with its weights in another file."""
    model = onnx_conv((1, 3, 8, 8))
    onnx.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return tmp_path / "model.onnx"


def compiled(source: object, **options: object) -> CompiledModel:
    return tvm_fixes.compile(source, cache=True, **{"compare": False, **options})


def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that were just written count as old."""
    monkeypatch.setattr("tvm_fixes.compiler.caching.SETTLED_SECONDS", -60.0)


def test_a_model_is_compiled_once_and_compared_each_time(
    image: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same() -> object:
        torch.manual_seed(0)
        return conv_net()

    first = compiled(same(), compare=True)
    assert not first.report.cached and first.report.accepted
    monkeypatch.setattr(steps, "lower", None)
    second = compiled(same(), compare=True)
    assert second.report.cached and second.report.accepted
    assert second.report.reference == first.report.reference
    assert "from the cache" in str(second.report)
    np.testing.assert_array_equal(second.run(image), first.run(image))
    second.save(tmp_path / "out")
    np.testing.assert_array_equal(CompiledModel.load(tmp_path / "out").run(image), first.run(image))
    assert list(second.report.seconds)[-1] == "compare" and "cache" in second.report.seconds


def test_other_weights_are_another_model() -> None:
    def net(value: float) -> object:
        layer = nn.Linear(4, 4)
        nn.init.constant_(layer.weight, value)
        nn.init.zeros_(layer.bias)
        return layer.eval(), (torch.ones(2, 4),)

    results = []
    for value in (1.0, 2.0, 1.0):
        model = compiled(net(value))
        results.append((model.report.cached, float(model.run(np.ones((2, 4), "float32"))[0, 0])))
    assert results == [(False, 4.0), (False, 8.0), (True, 4.0)]


def test_a_file_is_found_without_an_import(
    path: Path, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(monkeypatch)
    first = compiled(path)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "import_model", refuse)
        second = compiled(path)
        np.testing.assert_array_equal(second.run(image), first.run(image))
        renamed = path.rename(path.with_name("renamed.onnx"))
        assert compiled(renamed).report.source == "renamed.onnx"
        with pytest.raises(AssertionError, match="imported"):
            compiled(renamed, verify=False)
    # The same module as an object.
    onnx_model = onnx.load(renamed)
    assert compiled(onnx_model).report.cached
    for changed in ("weights.bin", "renamed.onnx"):
        data = bytearray((path.parent / changed).read_bytes())
        place_of_change = -3 if changed == "weights.bin" else data.index(b"relu")
        data[place_of_change] ^= 1
        (path.parent / changed).write_bytes(data)
        assert not compiled(renamed).report.cached


def test_a_file_that_was_just_written_is_not_known_by_its_bytes(path: Path) -> None:
    compiled(path)
    kinds = [entry.made["kind"] for entry in eviction.entries_of(place.existing())]
    assert kinds == []


@pytest.mark.parametrize(
    "options", [{"explain": True}, {"time_passes": True}, {"verify_each": True}]
)
def test_options_that_show_the_compilation_turn_the_cache_off(
    options: dict[str, object], directory: Path
) -> None:
    assert not compiled((nn.ReLU().eval(), (torch.ones(2),)), **options).report.cached
    assert not directory.exists()


def test_a_damaged_manifest_or_library_is_compiled_again(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = (nn.ReLU().eval(), (torch.ones(2),))
    compiled(source)
    for folder in ("entries", "blobs"):
        (path,) = (directory / folder).iterdir()
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        model = compiled(source)
        assert not model.report.cached
        np.testing.assert_array_equal(model.run(np.float32([-1, 2])), [0, 2])
        assert any("compiled again" in message for message in caplog.messages)
        assert compiled(source).report.cached


def test_the_command_lists_and_clears(
    path: Path,
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old(monkeypatch)
    for known in (False, True):
        assert main(["compile", str(path), "--cache", "--no-compare", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["cached"] is known
    assert main(["compile", str(path), "--cache", "--no-compare", "-q"]) == 0
    assert "from the cache" in capsys.readouterr().out
    assert main(["cache", "list"]) == 0
    out = capsys.readouterr().out
    assert "model.onnx" in out and f"{directory}: 2 entries" in out
    assert main(["cache", "clear", "--older-than", "1d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"]["entries"] == 0
    assert main(["cache", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {entry["kind"] for entry in listed["entries"]} == {"file", "module"}
    assert main(["cache", "clear"]) == 0
    assert f"{directory}: 2 entries removed" in capsys.readouterr().out
    monkeypatch.setenv("TVM_FIXES_CACHE", "0")
    assert main(["cache", "list"]) == 2
    assert main(["cache", "list", "--older-than", "1d"]) == 2
    with pytest.raises(SystemExit):
        main(["cache", "clear", "--older-than", "soon"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.linear(x)) + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return y.T, y.sum(0)


def fast(net: nn.Module, **options: object) -> object:
    torch._dynamo.reset()
    return torch.compile(net, backend=Backend(Options(**options)))


def refuse(*_: object) -> None:
    raise AssertionError("imported")


def check_equal(net: nn.Module, function: object, rows: int) -> None:
    x = torch.randn(rows, 4)
    for got, expected in zip(function(x), net(x), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()


def test_the_backend_takes_kernels_from_the_cache_for_any_parameters(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    net, other = Net().eval(), Net().eval()
    function = fast(net)
    for rows in (3, 5, 7):  # the second size makes the dim dynamic
        check_equal(net, function, rows)
    number = len(list((directory / "entries").iterdir()))
    assert number >= 2
    monkeypatch.setattr(partition, "from_functional_graph", refuse)
    function = fast(other, fallback=False)
    for rows in (3, 5, 9):
        check_equal(other, function, rows)
    # Another layout is another key.
    with pytest.raises(Exception, match="imported"):
        fast(other, fallback=False, layout="NHWC")(torch.randn(3, 4))
    assert len(list((directory / "entries").iterdir())) == number


def test_the_backend_without_the_cache_or_a_linker(
    monkeypatch: pytest.MonkeyPatch, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net().eval()
    check_equal(net, fast(net, cache=False), 3)
    assert not directory.exists()

    def fail(*_: object) -> None:
        raise tvm_fixes.CompileError("no compiler")

    monkeypatch.setattr(kernels, "link", fail)
    check_equal(net, fast(net), 3)
    assert sum("no compiler" in message for message in caplog.messages) == 1
    assert not list((directory / "entries").iterdir()) if directory.exists() else True


def test_an_import_that_adds_guards_is_not_stored(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    convert = partition.from_functional_graph

    def guarding(module: torch.fx.GraphModule) -> tvm.IRModule:
        value = next(iter(module.graph.nodes)).meta["val"]
        shapes = value.fake_mode.shape_env
        if shapes.var_to_range:
            symbol = next(one for one in value.shape if isinstance(one, torch.SymInt))
            assert symbol > 4
        return convert(module)

    monkeypatch.setattr(partition, "from_functional_graph", guarding)
    net = nn.ReLU()
    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    torch.testing.assert_close(fast(net)(x), net(x))
    entries = directory / "entries"
    assert not entries.exists() or not list(entries.iterdir())


class Views(nn.Module):
    """Two partitions with an operator between them that PyTorch runs, and a constant."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.special.bessel_j0(x * 2 + torch.tensor([1.0, 2.0, 3.0, 4.0]))
        z = torch.relu(y + 1)
        return z.T, z[1:], y.sum(0)


def entries_of(directory: Path, kind: str) -> list[dict[str, object]]:
    read = [read_entry(path) for path in (directory / "entries").iterdir()]
    return [entry.data for entry in read if entry.made["kind"] == kind]


def test_the_backend_takes_graphs_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = Views()
    check_equal(net, fast(net), 3)
    assert len(entries_of(directory, "traced graph")) == 1
    monkeypatch.setattr(Backend, "_compiled", refuse)
    function = fast(net)
    check_equal(net, function, 3)
    results = function(torch.randn(3, 4))
    assert results[0].untyped_storage()._cdata == results[1].untyped_storage()._cdata
    # Other sizes, and numbers in another precision inside an autocast, are other graphs.
    for rows, dtype in ((4, torch.float32), (3, torch.float64)):
        with pytest.raises(Exception, match="imported"):
            fast(net, fallback=False)(torch.randn(rows, 4, dtype=dtype))
    with torch.autocast("cpu"), pytest.raises(Exception, match="imported"):
        fast(net, fallback=False)(torch.randn(3, 4))
    with pytest.raises(Exception, match=r"fallback is off: aten\.special_bessel_j0"):
        fast(net, fallback=False)(torch.randn(3, 4))

    def fail(*_: object) -> None:
        raise ValueError("a bad day")

    function = fast(net)
    monkeypatch.setattr(partition.Partition, "_results", fail)
    check_equal(net, function, 3)
    assert sum("a bad day" in message for message in caplog.messages) == 2


def test_a_graph_in_an_autocast_is_found(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    net, x = (
        nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4)).eval(),
        torch.ones(2, 4),
    )
    with torch.autocast("cpu"):
        expected = fast(net)(x)
        assert len(entries_of(directory, "traced graph")) == 1
        monkeypatch.setattr(Backend, "_compiled", refuse)
        found = fast(net)(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def updated(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * 2


@pytest.mark.parametrize(
    "program",
    [updated, lambda x: x, lambda x: (x[1:], x * 2), lambda x: x.expand(2, 3, 4)],
)
def test_a_graph_that_updates_or_returns_inputs_is_not_stored(
    program: Callable[..., object], directory: Path
) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        x, other = (torch.arange(12.0).reshape(3, 4) for _ in range(2))
        got, expected = fast(program)(x), program(other)
        torch.testing.assert_close((got, x), (expected, other))
        for one in got if isinstance(got, tuple) else (got,):
            shares = one.untyped_storage()._cdata == x.untyped_storage()._cdata
            assert shares == (program is not updated and one is not got[-1])
    assert not (directory / "entries").exists() or not entries_of(directory, "traced graph")


def test_a_graph_is_not_stored_if_a_part_failed(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    net = Net().eval()
    with monkeypatch.context() as patch:
        patch.setattr(partition, "from_functional_graph", refuse)
        check_equal(net, fast(net), 3)
    assert not (directory / "entries").exists() or not entries_of(directory, "traced graph")


def test_a_graph_without_its_kernels_is_compiled_again(directory: Path) -> None:
    net = Views()
    check_equal(net, fast(net), 3)
    for path in (directory / "blobs").iterdir():
        path.unlink()
    check_equal(net, fast(net), 3)
    assert len(entries_of(directory, "graph")) == 2


@from_tier("ci")
def test_a_damaged_library_is_compiled_again(directory: Path) -> None:
    net = Net().eval()
    check_equal(net, fast(net), 3)
    for path in (directory / "blobs").iterdir():
        path.write_bytes(b"\x7fELF" + path.read_bytes()[4:-1] + b"?")
    check_equal(net, fast(net), 3)
    for path in (directory / "entries").iterdir():
        os.truncate(path, 100)
    check_equal(net, fast(net), 3)


if __name__ == "__main__":
    tvm.testing.main()

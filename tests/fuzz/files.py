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
"""Hostile files of each input format: mutated valid files, passed to the commands' entry points.

A file is read, or rejected with one of the product's errors that names it; all else is a fault.
"""

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

import tvm_fixes
from tvm_fixes import relay
from tvm_fixes.errors import CompileError
from tvm_fixes.runtime.inspection import inspect
from tvm_fixes.runtime.manifest import LIBRARY, MANIFEST, WEIGHTS
from tvm_fixes.source.module_file import read_module

from . import onnx_models, relay_models
from .file_mutations import mutate_archive, mutate_bytes, mutate_json, mutate_message, mutate_words
from .relax_programs import make_program

FORMATS = (
    *("onnx", "pt2", "json", "script", "manifest", "safetensors", "elf"),
    *("relay", "relay-json", "relay-params"),
)

_RELAY = ("relay", "relay-json", "relay-params")

# Relay's errors give a line and a column, or name an operator, a variable or a node.
_PLACE = re.compile(r"\d+:\d+|%|node \d+|operator|@|the type of|: ")

_SCRIPT = """\
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        with R.dataflow():
            y: R.Tensor((n, 4), "float32") = R.add(x, R.const(1.0, "float32"))
            z = R.nn.softmax(y, axis=1)
            R.output(z)
        return z
"""


class _Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.linear(x) + self.offset
        return {"y": y[: x.shape[0] // 2 + 1], "z": torch.cat([y, y]).relu()}


class _Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.max_pool2d(self.layers(x), 2)
        y = functional.interpolate(y, scale_factor=2, mode="bilinear")
        return functional.pad(y, (1, 1)).mean((2, 3)).softmax(1)


class _Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.table(x)
        y = functional.scaled_dot_product_attention(y, y, y, is_causal=True)
        y[:, 0] = y[:, -1]
        return y.permute(0, 2, 1).reshape(-1, 2), y.argmax(-1).unsqueeze(0).expand(3, -1, -1)


def prepare() -> None:
    """Create the valid files."""
    _seeds()


@cache
def _seeds() -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="tvm-fixes-fuzz-"))
    try:
        return _make_seeds(folder)
    finally:
        shutil.rmtree(folder)


def _make_seeds(folder: Path) -> dict[str, Any]:
    (folder / "module.py").write_text(_SCRIPT)
    models = _onnx_models()
    module, inputs = nn.Linear(128, 128).eval(), (torch.ones(1, 128),)
    tvm_fixes.compile((module, inputs), compare=False, weights="outside", output=folder / "out")
    assert (folder / "out" / WEIGHTS).exists()
    return {
        "onnx": models,
        "pt2": _programs(folder / "model.pt2"),
        "json": tvm.ir.save_json(read_module(folder / "module.py")).encode(),
        "script": _SCRIPT.encode(),
        "artifact": {path.name: path.read_bytes() for path in (folder / "out").iterdir()},
    }


def _programs(path: Path) -> list[list[tuple[str, bytes]]]:
    """The archive members of a few exported programs."""
    first = {"x": {0: torch.export.Dim.AUTO}}
    programs = []
    for module, x in (
        (_Linear(), torch.ones(6, 4)),
        (_Image(), torch.ones(2, 2, 4, 4)),
        (_Tokens(), torch.arange(6).reshape(2, 3)),
    ):
        torch.export.save(torch.export.export(module.eval(), (x,), dynamic_shapes=first), path)
        with zipfile.ZipFile(path) as archive:
            programs.append([(entry, archive.read(entry)) for entry in archive.namelist()])
    return programs


def _onnx_models() -> list[onnx.ModelProto]:
    def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    def tensor(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.full(shape, 0.5, "float32"), name)

    def model(
        nodes: list[onnx.NodeProto], inputs: list[Any], weights: list[Any], **others: Any
    ) -> onnx.ModelProto:
        graph = helper.make_graph(nodes, "graph", inputs, [value("y")], weights)
        graph.output[0].type.tensor_type.ClearField("shape")
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, **others)

    node = helper.make_node
    convolution = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["p"], ["y"]),
    ]
    reshapes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("Slice", ["r", "zero", "two", "one"], ["y"]),
    ]
    integers = {"zero": [0], "one": [1], "two": [2], "rest": [-1]}
    constants = [numpy_helper.from_array(np.array(v, "int64"), k) for k, v in integers.items()]
    branches = {
        f"{name}_branch": helper.make_graph([node(kind, ["x"], [name])], name, [], [value(name, 4)])
        for name, kind in (("then", "Neg"), ("else", "Exp"))
    }
    call = helper.make_function(
        "own", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    flag = value("c", kind=TensorProto.BOOL)
    return [
        model(
            convolution,
            [value("x", 1, 2, 4, 4)],
            [tensor("w", 3, 2, 3, 3), tensor("b", 3)],
        ),
        model(reshapes, [value("x", "n", 2, 3)], constants),
        model([node("If", ["c"], ["y"], **branches)], [value("x", 4), flag], []),
        model([node("F", ["x"], ["y"], domain="own")], [value("x", 4)], [], functions=[call]),
    ]


def run_case(seed: int) -> str | None:
    """Mutate a file of the format that `seed` selects, and read it."""
    rng = np.random.default_rng(seed)
    name = FORMATS[seed % len(FORMATS)]
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-fuzz-") as folder:
        path = Path(folder)
        read = _WRITERS[name](rng, path)
        try:
            read()
        except CompileError as error:
            _check_message(error.message, name)
            return f"{name}: {error.message}"[:400].replace(folder, "")
    return None


def _check_message(message: str, name: str) -> None:
    assert message.strip(), f"{name}: the message is empty"
    lines = message.splitlines()
    # The verifier reports all violations, and type inference all ill-typed calls, one in a line.
    is_list = "error[" in message or (name in _RELAY and all(map(_PLACE.search, lines)))
    assert len(lines) == 1 or is_list, f"{name}: a message of {len(lines)} lines"
    bare = message.rpartition(": ")[2]
    assert bare not in ("std::bad_alloc", "KeyError", "AttributeError"), f"{name}: {message}"
    assert message.isprintable() or len(lines) > 1, f"{name}: {message!r} is not printable"


_Read = Callable[[], object]


def _verify(path: Path) -> None:
    tvm_fixes.verify(read_module(path)).text()


def _write_onnx(rng: np.random.Generator, folder: Path) -> _Read:
    model = onnx.ModelProto()
    seeds = _seeds()["onnx"]
    # The generated models cover all operators, the others functions and branches.
    if rng.random() < 0.7:
        model = onnx_models.make_graph(int(rng.integers(1 << 40))).model()
    else:
        model.CopyFrom(seeds[rng.integers(len(seeds))])
    if rng.random() < 0.7:
        for _ in range(rng.integers(1, 4)):
            mutate_message(rng, model)
        data = model.SerializeToString()
    else:
        data = mutate_bytes(rng, model.SerializeToString())
    path = folder / "model.onnx"
    path.write_bytes(data)
    if rng.random() < 0.25:
        return lambda: tvm_fixes.compile(path, compare=False)
    return lambda: _verify(path)


def _write_pt2(rng: np.random.Generator, folder: Path) -> _Read:
    path = folder / "model.pt2"
    programs = _seeds()["pt2"]
    mutate_archive(rng, programs[rng.integers(len(programs))], path)
    return lambda: _verify(path)


def _write_json(rng: np.random.Generator, folder: Path) -> _Read:
    path = folder / "module.json"
    data = _seeds()["json"]
    if rng.random() < 0.7:
        data = tvm.ir.save_json(make_program(rng, steps=3).mod).encode()
    path.write_bytes(_mutate_text(rng, data))
    return lambda: _verify(path)


def _write_script(rng: np.random.Generator, folder: Path) -> _Read:
    path = folder / "module.py"
    text = _seeds()["script"]
    if rng.random() < 0.7:
        generated = make_program(rng, steps=3).mod.script()
        # The text of a module lacks its constants.
        text = text if "metadata[" in generated else generated.encode()
    path.write_bytes(_swap_words(rng, text))
    return lambda: _verify(path)


def _write_relay(rng: np.random.Generator, folder: Path) -> _Read:
    path = folder / "old.relay"
    text = relay_models.make_program(int(rng.integers(1 << 40)))[0].astext().encode()
    path.write_bytes(mutate_bytes(rng, text) if rng.random() < 0.3 else _swap_words(rng, text))
    return lambda: _verify(path)


def _write_relay_json(rng: np.random.Generator, folder: Path) -> _Read:
    path = folder / "old.json"
    mod, _ = relay_models.make_program(int(rng.integers(1 << 40)))
    path.write_bytes(_mutate_text(rng, relay.save_json(mod).encode()))
    return lambda: _verify(path)


def _write_relay_params(rng: np.random.Generator, folder: Path) -> _Read:
    program, params = folder / "old.relay", folder / "old.params"
    mod, inputs = relay_models.make_program(int(rng.integers(1 << 40)))
    program.write_text(mod.astext())
    values = {v.name: x for v, x in zip(mod["main"].params, inputs, strict=True)}
    params.write_bytes(mutate_bytes(rng, relay.save_params(values)))
    return lambda: tvm_fixes.verify(read_module(program, params=params)).text()


def _swap_words(rng: np.random.Generator, text: bytes) -> bytes:
    """Replace a few words of a program by others of its words."""
    words = re.split(rb"(\W)", text)
    # Swapping words of different kinds mostly gives a syntax error.
    kinds = [_kind_of(word) for word in words]
    for _ in range(rng.integers(1, 4)):
        chosen = ("name", "number") if rng.random() < 0.8 else ("keyword", "sign", "space")
        at = rng.choice([index for index, kind in enumerate(kinds) if kind in chosen])
        alike = [word for word, kind in zip(words, kinds, strict=True) if kind == kinds[at]]
        others = alike if rng.random() < 0.9 else words
        words[at] = others[rng.integers(len(others))]
    return b"".join(words)


def _kind_of(word: bytes) -> str:
    if word in (b"def", b"class", b"with", b"import", b"from", b"as", b"return"):
        return "keyword"
    for kind, pattern in {"number": rb"\d+", "name": rb"\w+", "space": rb"\s*"}.items():
        if re.fullmatch(pattern, word):
            return kind
    return "sign"


def _mutate_text(rng: np.random.Generator, data: bytes) -> bytes:
    if rng.random() < 0.25:
        return mutate_bytes(rng, data)
    return mutate_json(rng, json.loads(data))


def _mutate_header(rng: np.random.Generator, files: dict[str, bytes]) -> None:
    """Change the header of the weights, and adapt the manifest."""
    data = _seeds()["artifact"][WEIGHTS]
    begin = 8 + int.from_bytes(data[:8], "little")
    header = _mutate_text(rng, data[8:begin])
    head = len(header).to_bytes(8, "little") + header
    files[WEIGHTS] = head + data[begin:]
    manifest = json.loads(files[MANIFEST])
    manifest["weights"] |= {
        "size": len(files[WEIGHTS]),
        "sha256": hashlib.sha256(files[WEIGHTS]).hexdigest(),
        "header_sha256": hashlib.sha256(head).hexdigest(),
    }
    files[MANIFEST] = json.dumps(manifest).encode()


def _write_artifact(changed: str) -> Callable[[np.random.Generator, Path], _Read]:
    def write(rng: np.random.Generator, folder: Path) -> _Read:
        files = dict(_seeds()["artifact"])
        data = files[changed]
        files[changed] = _mutate_text(rng, data) if changed == MANIFEST else mutate_bytes(rng, data)
        if changed == LIBRARY and rng.random() < 0.8:
            files[changed] = mutate_words(rng, data)
        if changed == WEIGHTS and rng.random() < 0.7:
            _mutate_header(rng, files)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if rng.random() < 0.5:
            return lambda: inspect(folder).to_json()
        if changed == LIBRARY:
            return lambda: inspect(folder / LIBRARY).to_json()
        return lambda: tvm_fixes.CompiledModel.load(folder)

    return write


_WRITERS: dict[str, Callable[[np.random.Generator, Path], _Read]] = {
    "onnx": _write_onnx,
    "pt2": _write_pt2,
    "json": _write_json,
    "script": _write_script,
    "manifest": _write_artifact(MANIFEST),
    "safetensors": _write_artifact(WEIGHTS),
    "elf": _write_artifact(LIBRARY),
    "relay": _write_relay,
    "relay-json": _write_relay_json,
    "relay-params": _write_relay_params,
}

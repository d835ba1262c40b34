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
"""Compile a model of several GiB, without a second copy of it in memory, and run it from files.

The example writes an ONNX model of random weights (an embedding, residual layers of two matrices
each, a final matrix) with its weights in an external file. It compiles the model with the weights
outside the library, loads and runs it in another process, and compares the output with NumPy, which
reads the model's own file. It prints the sizes, the times, and the peak of anonymous memory: memory
without a file behind it, which the system cannot drop and read again.

    python -m examples.large_weights                                   # 4.2 GiB; 14 GiB of disk
    python -m examples.large_weights --layers 10 --width 768 --rows 4096    # 204 MiB
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

WEIGHTS = "model.data"
TOKENS = 8

_PAGE = 4096
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Sizes:
    """The size of the model.

    Attributes
    ----------
    layers : int
        The number of layers, of two matrices each.
    width : int
        The width of a row; the hidden width of a layer is four times as large.
    rows : int
        The number of rows of the embedding, and of columns of the final matrix.
    """

    layers: int
    width: int
    rows: int

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the names and shapes of the weights, in the order of the file."""
        yield "embedding", (self.rows, self.width)
        for layer in range(self.layers):
            yield f"up.{layer}", (self.width, 4 * self.width)
            yield f"bias.{layer}", (4 * self.width,)
            yield f"down.{layer}", (4 * self.width, self.width)
        yield "head", (self.width, self.rows)

    @property
    def nbytes(self) -> int:
        """The size of the weights in bytes."""
        return sum(4 * int(np.prod(shape)) for _, shape in self.shapes())


def write_model(directory: Path, sizes: Sizes) -> Path:
    """Write the model and its weights in chunks; return the path of the model."""
    rng = np.random.default_rng(0)
    initializers = []
    with open(directory / WEIGHTS, "wb") as file:
        for name, shape in sizes.shapes():
            file.seek(-(-file.tell() // _PAGE) * _PAGE)
            entry = {"location": WEIGHTS, "offset": file.tell(), "length": 4 * int(np.prod(shape))}
            tensor = TensorProto(
                name=name,
                data_type=TensorProto.FLOAT,
                dims=shape,
                data_location=TensorProto.EXTERNAL,
            )
            for key, value in entry.items():
                tensor.external_data.add(key=key, value=str(value))
            initializers.append(tensor)
            scale = np.float32(1 if name == "embedding" else shape[0] ** -0.5)
            for begin in range(0, int(np.prod(shape)), _CHUNK):
                count = min(_CHUNK, int(np.prod(shape)) - begin)
                file.write((rng.standard_normal(count, dtype="float32") * scale).data)
    nodes = [helper.make_node("Gather", ["embedding", "tokens"], ["h0"])]
    for layer in range(sizes.layers):
        h, u, b, r, d = (f"{letter}{layer}" for letter in "hubrd")
        nodes += [
            helper.make_node("MatMul", [h, f"up.{layer}"], [u]),
            helper.make_node("Add", [u, f"bias.{layer}"], [b]),
            helper.make_node("Relu", [b], [r]),
            helper.make_node("MatMul", [r, f"down.{layer}"], [d]),
            helper.make_node("Add", [h, d], [f"h{layer + 1}"]),
        ]
    nodes.append(helper.make_node("MatMul", [f"h{sizes.layers}", "head"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, TOKENS])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, TOKENS, sizes.rows])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, directory / "model.onnx")
    return directory / "model.onnx"


def tokens(sizes: Sizes) -> np.ndarray:
    """Return the input of the model."""
    return np.random.default_rng(1).integers(0, sizes.rows, (1, TOKENS))


def reference(model: Path, sizes: Sizes) -> np.ndarray:
    """Compute the model's output with NumPy, from the mapped weights file."""
    weights: dict[str, np.ndarray] = {}
    offset = 0
    for name, shape in sizes.shapes():
        offset = -(-offset // _PAGE) * _PAGE
        weights[name] = np.memmap(model.parent / WEIGHTS, "float32", "r", offset, shape)
        offset += 4 * int(np.prod(shape))
    h = weights["embedding"][tokens(sizes)]
    for layer in range(sizes.layers):
        hidden = np.maximum(h @ weights[f"up.{layer}"] + weights[f"bias.{layer}"], 0)
        h = h + hidden @ weights[f"down.{layer}"]
    return np.asarray(h @ weights["head"])


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process (``RssAnon``) in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


@dataclass
class Peaks:
    """The peak of anonymous memory in bytes, by step."""

    by_step: dict[str, int] = field(default_factory=dict)
    step: str = "start"


@contextmanager
def watched() -> Iterator[Peaks]:
    """Sample the anonymous memory of this process every few milliseconds within the block."""
    peaks = Peaks()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.003):
            peaks.by_step[peaks.step] = max(peaks.by_step.get(peaks.step, 0), anonymous_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def compile_watched(model: Path, output: Path, weights: str = "outside") -> dict[str, Any]:
    """Compile the model, and measure the additional anonymous memory.

    Returns
    -------
    found : dict
        ``parameters`` and ``artifact``: sizes in bytes; ``peaks``: by step, in bytes above the
        memory in use after the model was opened; ``seconds``: time of the compilation.
    """
    from tvm_fixes.compiler import Step
    from tvm_fixes.compiler import compile as compile_model

    before = 0
    with watched() as peaks:

        def progress(step: Step) -> None:
            nonlocal before
            if step.seconds is None:
                peaks.step = step.name
            elif step.name == "load":
                before = anonymous_bytes()

        start = time.perf_counter()
        made = compile_model(
            model, weights=weights, compare=False, output=output, progress=progress
        )
        seconds = time.perf_counter() - start
    assert made.report is not None
    return {
        "parameters": made.report.parameter_bytes,
        "artifact": made.report.artifact_bytes,
        "peaks": {step: peak - before for step, peak in peaks.by_step.items() if step != "load"},
        "seconds": seconds,
    }


def run_watched(output: Path, sizes: Sizes, result: Path) -> dict[str, Any]:
    """Load and run the artifact; return the times in seconds and the peak of anonymous memory."""
    from tvm_fixes.runtime import CompiledModel

    before = anonymous_bytes()
    with watched() as peaks:
        start = time.perf_counter()
        model = CompiledModel.load(output)
        loaded = time.perf_counter()
        logits = model.run(tokens(sizes))
        ran = time.perf_counter()
        model.run(tokens(sizes))
        again = time.perf_counter()
    np.save(result, logits)
    times = {"load": loaded - start, "first run": ran - loaded, "second run": again - ran}
    return {**times, "peak": max(peaks.by_step.values(), default=before) - before}


def in_another_process(function: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """Call `function` in a new process, whose memory is measured separately."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def main(argv: list[str] | None = None) -> int:
    """Run the example; return 1 if the artifact's output differs from NumPy's."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.large_weights",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--layers", type=int, default=15, help="number of layers (default: 15)")
    parser.add_argument("--width", type=int, default=2816, help="width of a row (default: 2816)")
    parser.add_argument(
        "--rows", type=int, default=32000, help="rows of the embedding (default: 32000)"
    )
    parser.add_argument(
        "--directory", help="where to write the files (default: a temporary directory)"
    )
    arguments = parser.parse_args(argv)
    sizes = Sizes(arguments.layers, arguments.width, arguments.rows)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        model = write_model(Path(directory), sizes)
        output, result = Path(directory) / "out", Path(directory) / "logits.npy"
        made = in_another_process(compile_watched, model, output)
        ran = in_another_process(run_watched, output, sizes, result)
        found, expected = np.load(result), reference(model, sizes)
    parameters = made["parameters"]
    step, peak = max(made["peaks"].items(), key=lambda item: item[1])
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    ratio = made["artifact"] / parameters
    lines = {
        "parameters": f"{parameters / 2**30:.3f} GiB",
        "artifact": f"{made['artifact'] / 2**30:.3f} GiB, {ratio:.4f} times",
        "compilation": f"{made['seconds']:.1f} s",
        "peak of anonymous memory": f"{peak / 2**20:.0f} MiB, {peak / parameters:.3f} times, in "
        f"the step {step!r}",
        **{name: f"{ran[name]:.2f} s" for name in ("load", "first run", "second run")},
        "anonymous memory of a run": f"{ran['peak'] / 2**20:.0f} MiB",
        "largest error against NumPy": f"{error:.2g} of the largest value",
    }
    for name, text in lines.items():
        print(f"{name:<28}{text}")
    return 0 if error < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())

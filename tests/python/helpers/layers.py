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
"""The layers of the Python code, and their table in ``CONTRIBUTING.md``.

``python tests/python/helpers/layers.py`` updates the table.
"""

import re
from pathlib import Path

CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"

LAYERS = (
    ("__main__", "`python -m tvm_fixes`"),
    (
        "tvm_fixes_cli",
        "the command line, one module per command; outside the package, which loads TVM",
    ),
    ("__init__", "the public names; the registration of what replaces TVM's behavior"),
    ("doctor", "the state of an installation"),
    (
        "probes",
        "for each fix, the smallest program that fails on stock TVM; only `doctor` and tests "
        "import it",
    ),
    ("debug", "the public names of `search` and `report`, imported on first use"),
    ("search", "searches for the smallest part, the fix, the pass or the kernel with a problem"),
    (
        "report",
        "comparison of intermediate values, times of kernels, and an HTML report of both, with its "
        "JavaScript and CSS in `page/`",
    ),
    ("testing", "comparison of a module before and after a pass"),
    ("torch", "the backend of `torch.compile`"),
    (
        "compiler",
        "`compile` and its steps from a model to an artifact (`steps.py`); models with lifted "
        "weights; application of passes by name; `cache/`: compiled models on disk",
    ),
    ("passes", "all passes by name"),
    ("lowering", "the passes of the pipeline's table, made for a target"),
    ("user_passes", "a user's own passes, by name, at their places in the pipeline's table"),
    ("transform", "the public passes"),
    (
        "observe",
        "comparison of outputs with the reference's; the reference's process; what each pass and "
        "each fix changes",
    ),
    ("source", "the sources of a model, its inputs, and its reference"),
    (
        "runtime",
        "`CompiledModel`, `LiftedModule`; libraries, arguments, manifests, weights, reports, "
        "atomic writes, calls after a fork",
    ),
    (
        "frontend",
        "importers: TVM's for ONNX and PyTorch, with corrections; the translation of Relay, one "
        "file per operator family",
    ),
    ("verifier", "diagnostics and their text, `VerifyEach`"),
    ("relay", "Relay IR, readers and passes, bound from `src/relay`"),
    (
        "relax",
        "`transform/`: passes, one per file; `legalize/`: lowerings, with `conv/` and `matmul/`; "
        "`constants/`; `lift/`",
    ),
    (
        "tirx",
        "loop nests, vectorization, row schedules; `transform/`: passes on PrimFuncs, one per file",
    ),
    ("target", "resolution of the target; the CPU model; CUDA"),
    ("_ffi", "loading of the native library"),
    ("support", "files, forked processes, logs, signals, switches, tensors"),
    ("attributes", "the attributes of IR: who writes them, who reads them"),
    (
        "pipeline",
        "the pipeline as a table: each pass, the targets that it runs for, and why it stands there",
    ),
    ("fixes", "the declarations of the fixes: data that loads neither TVM nor PyTorch"),
    ("errors versions", "errors; the supported versions of TVM"),
)
"""The modules and packages of tvm_fixes: each imports only those below it, or in its own line."""

_TABLE = re.compile(r"(?<=<!-- layers -->\n).*?(?=<!-- end of layers -->)", re.DOTALL)


def _path(name: str) -> str:
    root = CONTRIBUTING.parent / "python"
    base = root / name if name == "tvm_fixes_cli" else root / "tvm_fixes" / name
    path = base if base.is_dir() else base.with_suffix(".py")
    return f"`{path.relative_to(root.parent)}{'/' * path.is_dir()}`"


def table() -> str:
    """The table, in Markdown."""
    rows = [(", ".join(map(_path, names.split())), contents) for names, contents in LAYERS]
    return "".join(
        f"| {paths} | {contents} |\n" for paths, contents in [("path", "contents"), *rows]
    ).replace("\n", "\n| --- | --- |\n", 1)


def with_table(text: str) -> str:
    """The text of ``CONTRIBUTING.md`` with the table."""
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    CONTRIBUTING.write_text(with_table(CONTRIBUTING.read_text()))

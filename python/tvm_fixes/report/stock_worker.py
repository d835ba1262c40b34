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
"""Runs a model with plain TVM.  A script: it does not import tvm_fixes, which changes TVM."""

import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(model: Path) -> None:
    """Run `model` on the inputs beside it, and write the outputs."""
    # The folder of this file has modules with common names.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    if model.suffix == ".onnx":
        # TVM imports PyTorch if it can, which takes longer than all else.
        sys.modules["torch"] = None  # type: ignore[assignment]
    import ml_dtypes  # noqa: F401  # names bfloat16 for NumPy
    import tvm
    from tvm import relax

    with np.load(model.with_name("dtypes.npz")) as file:
        dtypes = [str(name) for name in file["dtypes"]]
    with np.load(model.with_name("inputs.npz")) as file:
        inputs = {
            name: file[name].view(np.dtype(dtype))
            for name, dtype in zip(file.files, dtypes, strict=True)
        }
    mod = _imported(model, {name: list(value.shape) for name, value in inputs.items()})
    machine = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, inputs.values()))
    outputs = [array.numpy() for array in _flat(result)]
    names = np.array([array.dtype.name for array in outputs])
    np.savez(model.with_name("outputs.npz"), *outputs, names)


def _imported(model: Path, shapes: dict[str, list[int]]) -> Any:
    if model.suffix == ".onnx":
        import onnx
        from tvm.relax.frontend.onnx import from_onnx

        return from_onnx(onnx.load(model), shape_dict=shapes)
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    return from_exported_program(torch.export.load(model))


def _flat(value: Any) -> list[Any]:
    if hasattr(value, "numpy"):
        return [value]
    return [leaf for part in value for leaf in _flat(part)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

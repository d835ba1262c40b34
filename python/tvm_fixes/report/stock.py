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
"""Outputs of plain TVM, which runs in its own process without the fixes."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import CompileError
from ..source import Source
from ..source.inputs import save_arrays
from ..support.tensors import numpy_dtype

# Objects that an error leaves unfinished warn after its message.
_WARNING = re.compile(r"^\[\d\d:\d\d:\d\d\] \S*: Warning: .*$", re.MULTILINE)

# Compilation by TVM has no limit of its own.
_MAX_SECONDS = 600.0


def run_stock(source: Source, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """Import, build and run a model with plain TVM.

    Returns
    -------
    list of numpy.ndarray or str
        The outputs, or the reason of a failure in one line.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as name:
        folder = Path(name)
        try:
            model = source.save_in(folder)
        except CompileError:
            raise
        except Exception as error:
            return f"the model cannot be passed on: {_last_line(str(error))}"
        arrays = {spec.name: value for spec, value in zip(source.inputs, inputs, strict=True)}
        dtypes = np.array([value.dtype.name for value in inputs])
        save_arrays(folder / "dtypes.npz", {"dtypes": dtypes})
        save_arrays(folder / "inputs.npz", arrays)
        worker = Path(__file__).with_name("stock_worker.py")
        try:
            done = subprocess.run(
                [sys.executable, str(worker), str(model)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_MAX_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"no result after {_MAX_SECONDS:.0f} s"
        if done.returncode < 0:
            return f"it ended by signal {-done.returncode}"
        if done.returncode:
            return _last_line(done.stderr)
        with np.load(folder / "outputs.npz", allow_pickle=False) as file:
            *found, names = (file[key] for key in file.files)
        return [
            array.view(numpy_dtype(str(dtype))) for array, dtype in zip(found, names, strict=True)
        ]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in _WARNING.sub("", text).splitlines() if line.strip()]
    return lines[-1] if lines else "an error without a message"

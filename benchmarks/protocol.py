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
"""The requests that the driver sends to a worker, one JSON object per line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

INPUTS, EXPECTED, ONNX = "inputs.npz", "expected.npy", "model.onnx"
"""Files in the folder of a case."""

QUANTIZED_ONNX, QUANTIZED_EXPECTED = "model-quantized.onnx", "expected-quantized.npy"
"""The quantized model of a case, and its output."""

QUANTIZED_RUNTIMES = ("ort-quantized", "stock-quantized", "ours-quantized")
"""The runtimes of the quantized model."""

QUANTIZED_GROUPS = ("int8", "weight-only", "decode")
"""The groups with quantized models."""

MAX_ERROR = 1e-3
"""The maximum accepted error, relative to the largest magnitude of the output."""


def library(runtime: str) -> str:
    """Return the file name of the library that a runtime loads."""
    return f"{runtime}.so"


@dataclass(frozen=True)
class Job:
    """A case to build or run.

    Attributes
    ----------
    case : str
        The name of the case.
    folder : Path
        The folder of its files.
    threads : int
        The number of threads.
    target : mapping
        The configuration of TVM's target.
    """

    case: str
    folder: Path
    threads: int = 1
    target: Mapping[str, Any] = field(default_factory=dict)

    def inputs(self) -> list[np.ndarray]:
        """Read the inputs of the case."""
        with np.load(self.folder / INPUTS) as arrays:
            return [arrays[name] for name in arrays.files]

    def request(self) -> dict[str, Any]:
        """Return the request to open the case."""
        return {
            "do": "open",
            "case": self.case,
            "folder": str(self.folder),
            "threads": self.threads,
            "target": dict(self.target),
        }

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "Job":
        """Return the job of a request."""
        return cls(request["case"], Path(request["folder"]), request["threads"], request["target"])

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
"""Runs modules with plain TVM for the campaign ``import-passes``: a server that forks for each.

A script: it does not import tvm_fixes, which changes TVM. Its only argument is the path of a Unix
socket. A request is a pickled :class:`tuple` of a module as JSON, the names of TVM's passes and the
places where they run in TVM's pipeline, and inputs for several calls; the reply is a list with the
outputs of each call, or the text of an error. A crash closes the connection without a reply.
"""

import os
import pickle
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    # TVM imports PyTorch if it can, which takes longer than all else.
    sys.modules["torch"] = None  # type: ignore[assignment]

import ml_dtypes  # noqa: F401  # names bfloat16 for NumPy
import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as cpu

_SECONDS = 60


def pipeline(inserted: list[tuple[int, Any]]) -> tvm.transform.Pass:
    """TVM's pipeline for CPUs, with further passes, each before the pass of that number."""
    target = tvm.target.Target("llvm")
    passes: list[Any] = []
    for make in (
        cpu.library_dispatch_passes,
        cpu.legalize_passes,
        cpu.dataflow_lower_passes,
        cpu.finalize_passes,
    ):
        passes += make(target)
    for place, step in reversed(sorted(inserted, key=lambda one: one[0])):
        passes.insert(place, step)
    return tvm.transform.Sequential(passes)


def outputs(executable: Any, inputs: list[Any]) -> list[Any]:
    """The outputs of ``main`` as arrays."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [array.numpy() for array in _flat(machine["main"](*map(tvm.runtime.tensor, inputs)))]


def _flat(value: Any) -> list[Any]:
    if hasattr(value, "numpy"):
        return [value]
    return [leaf for part in value for leaf in _flat(part)]


def _answer(request: tuple[str, list[tuple[int, str]], list[list[Any]]]) -> Any:
    text, inserted, calls = request
    try:
        passes = [(place, getattr(relax.transform, name)()) for place, name in inserted]
        mod = tvm.ir.load_json(text)
        executable = relax.build(mod, "llvm", relax_pipeline=pipeline(passes))
        return [outputs(executable, inputs) for inputs in calls]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(path: str) -> None:
    """Serve until the parent ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    parent = os.getppid()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    server.settimeout(1)
    while os.getppid() == parent:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            signal.alarm(_SECONDS)
            connection.setblocking(True)
            pipe = Connection(connection.detach())
            pipe.send_bytes(pickle.dumps(_answer(pickle.loads(pipe.recv_bytes()))))
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    main(sys.argv[1])

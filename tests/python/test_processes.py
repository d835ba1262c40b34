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
"""Compilation in threads, in workers, and in processes that were started unusually."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.models import onnx_conv
from tvm_fixes.compiler import compile as compile_model

IMAGE = np.ones((1, 3, 8, 8), "float32")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A separate directory for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def compiled():
    return compile_model(onnx_conv(), compare=False)


def test_threads_take_turns():
    with ThreadPoolExecutor(3) as executor:
        models = [executor.submit(compiled) for _ in range(3)]
    first, *others = (model.result().run(IMAGE) for model in models)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_a_forked_child_leaves_the_files_of_its_parent(tmp_path):
    model = compiled()
    child = os.fork()
    if not child:
        try:
            multiprocessing.util._exit_function()  # at a normal exit, but without pytest's handlers
            model._library._owner.cleanup()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    model.save(tmp_path / "out")
    assert (tmp_path / "out" / "model.so").exists()


KEPT = []


def keep_a_model():
    KEPT.append(compiled())


def test_a_worker_leaves_no_files(temporary):
    worker = multiprocessing.get_context("fork").Process(target=keep_a_model, daemon=True)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    assert os.listdir(temporary) == []


SCRIPT = """
import os, signal, sys
os.close(1), os.close(2)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
import tvm_fixes
tvm_fixes.compile(sys.argv[1]).save(sys.argv[2])
"""


def test_without_standard_output_and_signals_of_children(tmp_path):
    onnx.save(onnx_conv((1, 3, 8, 8)), tmp_path / "model.onnx")
    command = [sys.executable, "-c", SCRIPT, tmp_path / "model.onnx", tmp_path / "out"]
    assert subprocess.run(command, check=False).returncode == 0
    assert "model.so" in os.listdir(tmp_path / "out")


def test_a_model_does_not_pickle():
    with pytest.raises(TypeError, match="a compiled model cannot be pickled: save it"):
        pickle.dumps(compiled())


if __name__ == "__main__":
    tvm.testing.main()

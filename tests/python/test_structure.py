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
"""The order of the packages: imports go down, and never in a circle."""

import functools
import graphlib
from pathlib import Path

import tvm.testing

from helpers import layers
from helpers.import_graph import graph, modules

ROOT = Path(__file__).parents[2] / "python"


MODULES = modules(ROOT, "**/*.py")

PLACES = {name: index for index, (names, _) in enumerate(layers.LAYERS) for name in names.split()}


@functools.cache
def imports():
    """The modules that each module imports."""
    return graph(MODULES)


def layer_of(module):
    """The place of the module or package in LAYERS that the module is, or is in."""
    name = module.removeprefix("tvm_fixes.").split(".")[0]
    return PLACES["__init__" if name == "tvm_fixes" else name]


def test_every_module_is_found():
    assert len(imports()) > 200
    assert "tvm_fixes.tirx.util" in imports()["tvm_fixes.relax.legalize.scatter"]


def test_every_layer_has_modules():
    assert len(PLACES) == sum(len(names.split()) for names, _ in layers.LAYERS)
    unused = {name for name in PLACES if name not in MODULES and f"tvm_fixes.{name}" not in MODULES}
    assert unused == {"__init__"}


def test_the_page_has_the_layers():
    """``python tests/python/helpers/layers.py`` updates it."""
    text = layers.CONTRIBUTING.read_text()
    assert layers.table() in text and layers.with_table(text) == text


def test_imports_go_down():
    upward = {
        (module, other)
        for module, others in imports().items()
        for other in others
        if layer_of(other) < layer_of(module)
    }
    assert not upward


def test_no_circle():
    """A package's __init__ runs before its modules, and imports some of them."""
    graphlib.TopologicalSorter(imports()).prepare()


def test_ambient_state_is_in_one_place():
    """Only ``support/ambient.py`` passes values around TVM's signatures."""
    assert not [name for name, path in MODULES.items() if "Collector" in path.read_text()]
    state = [name for name, path in MODULES.items() if "ContextVar(" in path.read_text()]
    assert state == ["tvm_fixes.support.ambient"]
    assert MODULES[state[0]].read_text().count("ContextVar(") == 1


if __name__ == "__main__":
    tvm.testing.main()

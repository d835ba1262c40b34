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
"""tvm_fixes.attributes, against the code that writes and reads attributes."""

import ast
import functools
import re
from pathlib import Path

import pytest
import tvm.testing
from tvm import tirx

from helpers import attributes_page
from tvm_fixes import attributes
from tvm_fixes.attributes import LIFTED, OWN, TVM, Attribute

ROOT = Path(__file__).parents[2]

PACKAGE = ROOT / "python" / "tvm_fixes"

DECLARED = {str(each): each for each in (*OWN, *TVM)}

CONSTANTS = {
    name: value for name, value in vars(attributes).items() if isinstance(value, Attribute)
}


def modules():
    """The name and the tree of each module that may write attributes.

    Probes have programs as a user writes them.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if name != "attributes" and not name.startswith("probes"):
            yield name, ast.parse(path.read_text())


@functools.cache
def trees():
    """The tree of each module by its name."""
    return dict(modules())


@functools.cache
def imported():
    """The names that each module imports from the declarations."""
    return {
        module: {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "attributes"
            for alias in node.names
        }
        for module, tree in trees().items()
    }


def keys_of(node):
    """The keys of a dict, or the expression itself."""
    return node.keys if isinstance(node, ast.Dict) else [node]


def written(tree):
    """Yield the names that a module gives to functions that write attributes, as expressions."""
    places = {"with_attr": 0, "with_attrs": 0, "func_attr": 0, "sblock_attr": 0, "annotate": 1}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and "annotations" in ast.unparse(target.value):
                    yield target.slice
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in places and len(node.args) > places[name]:
            yield from keys_of(node.args[places[name]])
        for keyword in node.keywords:
            if keyword.arg in ("primfunc_attrs", "attributes") and isinstance(
                keyword.value, ast.Dict
            ):
                yield from keyword.value.keys


def test_the_scan_finds_writes():
    tree = ast.parse(
        "f.with_attr('a', 1)\nf.with_attrs({'b': 1})\nsch.annotate(block, 'c', 1)\n"
        "loop.annotations['d'] = 1\nbb.call_te(f, primfunc_attrs={'e': 1})"
    )
    assert sorted(node.value for node in written(tree)) == ["a", "b", "c", "d", "e"]


def test_no_attribute_is_undeclared():
    undeclared = {
        (module, node.value)
        for module, tree in trees().items()
        for node in written(tree)
        if isinstance(node, ast.Constant) and node.value not in DECLARED
    }
    assert not undeclared, f"declare them in python/tvm_fixes/attributes.py: {undeclared}"


def test_ours_are_written_by_their_constants():
    texts = {str(each) for each in OWN if each.startswith("tvm_fixes.")} | {str(LIFTED)}
    spelled = {
        (module, node.value)
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in texts
    }
    assert not spelled


def test_native_code_reads_declared_ones():
    found = {}
    for path in sorted((ROOT / "src").rglob("*.cc")):
        for name in re.findall(r'FunctionAttr\([^"]*"([^"]+)"\)', path.read_text()):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {"updates", "relax.force_pure"} <= set(found) <= set(DECLARED)
    for name in ("updates", "relax.force_pure"):
        assert set(found[name]) <= set(DECLARED[name].readers)


@pytest.mark.parametrize("constant", [name for name, each in CONSTANTS.items() if each in OWN])
def test_writers_and_readers_are_the_modules_that_name_it(constant):
    uses = {module for module, names in imported().items() if constant in names}
    each = CONSTANTS[constant]
    declared = {name for name in (*each.writers, *each.readers) if not name.startswith("src/")}
    assert uses == declared


@pytest.mark.parametrize("name", DECLARED)
def test_writers_and_readers_exist(name):
    each = DECLARED[name]
    assert each.writers and each.holder and each.meaning
    for module in {*each.writers, *each.readers} - {"TVM"}:
        known = (ROOT / module).exists() if module.startswith("src/") else module in trees()
        assert known, module


def test_a_declaration_is_a_name_for_tvm():
    function = tirx.PrimFunc([], tirx.Evaluate(tirx.const(0))).with_attr(attributes.TILE, 4)
    assert int(function.attrs["tvm_fixes.tile"]) == 4
    assert attributes.TILE in function.attrs


def test_the_page_is_generated():
    """``python tests/python/helpers/attributes_page.py > docs/attributes.md`` regenerates it."""
    assert (ROOT / "docs" / "attributes.md").read_text() == attributes_page.page()


if __name__ == "__main__":
    tvm.testing.main()

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
"""Chains of converters: their order, versions and switches."""

from dataclasses import dataclass, replace

import pytest
import tvm.testing

from tvm_fixes.fixes.onnx_importer import PAD, RESIZE
from tvm_fixes.frontend.convert import EVERY, OPERATOR, Call, Converters
from tvm_fixes.frontend.onnx.call import CONVERTERS
from tvm_fixes.relax.source_nodes import SourceNode
from tvm_fixes.support import switches

PLACES = {"dtype": "It wraps the others.", OPERATOR: "The converter.", "last": "Before TVM's."}


@dataclass(frozen=True)
class Context:
    """A context whose calls have this last converter."""

    converters: Converters
    builder: None = None

    def convert(self, call):
        return self.converters.convert(call, stock)


def stock(call):
    return [f"stock {call.operator}"]


def link(name):
    return lambda call: [name, *call.proceed()]


@pytest.fixture
def converters():
    """Converters of no package but this test's."""
    return Converters("tvm_fixes.frontend.relay.graph", PLACES)


def result(converters, operator, version=1):
    source = SourceNode("node", operator)
    return Context(converters).convert(Call(operator, (), {}, version, source, Context(converters)))


def test_chain_follows_the_places(converters):
    converters.converts("Add", place="last")(link("last"))
    converters.converts("Add")(link("add"))
    converters.converts(EVERY, place="dtype")(link("dtype"))
    assert result(converters, "Add") == ["dtype", "add", "last", "stock Add"]
    assert result(converters, "Mul") == ["dtype", "stock Mul"]
    assert converters.operators() == {"Add"}


def test_versions_select_converters(converters):
    converters.converts("Add", until=7)(link("old"))
    converters.converts("Add", since=7)(link("new"))
    assert result(converters, "Add", 6) == ["old", "stock Add"]
    assert result(converters, "Add", 7) == ["new", "stock Add"]


def test_a_disabled_fix_leaves_the_rest_of_the_chain(converters):
    converters.converts("Pad", fix=PAD)(link("pad"))
    converters.converts("Pad", place="last", fix=RESIZE)(link("last"))
    with switches.without([PAD]):
        assert result(converters, "Pad") == ["last", "stock Pad"]
        assert converters.has("Pad")
    with switches.without([PAD, RESIZE]):
        assert not converters.has("Pad")
    assert converters.fixes() == {PAD, RESIZE}


def test_only_noted_converters_report_each_call(converters):
    converters.converts("Pad", fix=PAD, noted=True)(link("pad"))
    converters.converts("Resize", fix=RESIZE)(link("resize"))
    with switches.collect() as applied:
        result(converters, "Pad")
        result(converters, "Resize")
    assert applied == {PAD}


def test_another_operator_gets_its_whole_chain(converters):
    converters.converts("Mul")(link("mul"))
    converters.converts("Scale")(lambda call: replace(call, operator="Mul").convert())
    converters.converts("Double")(lambda call: replace(call, operator="Mul").proceed())
    assert result(converters, "Scale") == ["mul", "stock Mul"]
    assert result(converters, "Double") == ["stock Mul"]


def test_one_converter_for_each_place_and_version(converters):
    converters.converts("Add", since=7)(link("add"))
    with pytest.raises(ValueError, match="Add: two converters at the place 'operator'"):
        converters.converts("Add", since=13)(link("again"))
    with pytest.raises(ValueError, match="place is 'first'; expected one of dtype, operator, last"):
        converters.converts("Add", place="first")


def test_onnx_converters_are_found_in_their_files():
    assert {"Softmax", "com.microsoft.Attention", "ai.onnx.ml.TreeEnsemble"} <= set(
        CONVERTERS.operators()
    )


if __name__ == "__main__":
    tvm.testing.main()

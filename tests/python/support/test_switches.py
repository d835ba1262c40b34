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
"""TVM_FIXES_DISABLE."""

import pytest
import tvm
import tvm.testing

from tvm_fixes.support import ambient, switches


def test_everything_is_on_by_default():
    assert switches.disabled() == frozenset()
    assert all(switches.enabled(fix_id) for fix_id in switches.FIX_IDS)


@pytest.mark.parametrize("fix_id", switches.FIX_IDS)
def test_each_id_turns_off_itself_alone(monkeypatch, fix_id):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, fix_id)
    assert not switches.enabled(fix_id)
    assert all(switches.enabled(other) for other in switches.FIX_IDS if other != fix_id)


def test_a_change_counts_at_the_next_call(monkeypatch):
    assert switches.enabled("torch-dtype")
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-dtype")
    assert not switches.enabled("torch-dtype")
    monkeypatch.delenv(switches.ENVIRONMENT_VARIABLE)
    assert switches.enabled("torch-dtype")


@pytest.mark.parametrize(
    "value",
    [
        "torch-dtype,prepare-layout",
        " prepare-layout , torch-dtype ,",
        "torch-dtype,,prepare-layout",
    ],
)
def test_a_list_is_split_at_commas(monkeypatch, value):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, value)
    assert switches.disabled() == {"torch-dtype", "prepare-layout"}


@pytest.mark.parametrize("value", ["", " ", ","])
def test_an_empty_list_turns_off_nothing(monkeypatch, value):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, value)
    assert switches.disabled() == frozenset()


def test_an_unknown_id_in_the_variable_is_an_error_that_lists_the_known(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-dtype,torch_dtype,all")
    with pytest.raises(ValueError) as error:
        switches.enabled("prepare-layout")
    assert str(error.value) == (
        "TVM_FIXES_DISABLE: unknown fix 'all', 'torch_dtype'; "
        f"known fixes: {', '.join(switches.FIX_IDS)}"
    )


def test_asking_for_an_unknown_id_is_an_error_that_has_a_similar_one():
    with pytest.raises(ValueError) as error:
        switches.enabled("torch_dtype")
    assert str(error.value) == "unknown fix 'torch_dtype'; did you mean torch-dtype?"


def test_each_use_has_the_innermost_place():
    with switches.collect() as found, switches.at("outer"):
        switches.note("verifier")
        with switches.at("inner"):
            switches.note("torch-dtype")
            switches.note("verifier", "a span")
        switches.note("verifier")
    assert found == {"verifier", "torch-dtype"}
    assert [(use.fix, use.place.what) for use in found.uses] == [
        ("verifier", "outer"),
        ("torch-dtype", "inner"),
        ("verifier", "inner"),
        ("verifier", "outer"),
    ]


def test_a_use_without_a_place():
    with switches.collect() as found:
        switches.note("verifier")
        switches.note("verifier", "a span")
    first, second = found.uses
    assert first.place is None
    assert second.place.what == switches.Asked("a span")


def test_uses_of_an_inner_collection_count_only_if_they_are_passed_on():
    with switches.collect() as found:
        with switches.collect() as inner:
            switches.note("verifier")
        assert not found
        for fact in inner.facts:
            ambient.record(fact)
    assert found == {"verifier"} and found.uses == inner.uses


if __name__ == "__main__":
    tvm.testing.main()

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
"""Damaged Relay text: an error or a program, never a crash."""

import random

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from helpers.relay_programs import RandomProgram
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

pytestmark = pytest.mark.native

TOKENS = (
    "( ) [ ] { } , ; : . = + - * / < > ? ! # -> => == %x %0 %99 @main @f let fn def if else match "
    "match? ref ref_read ref_write free_var type extern meta[relay.Constant][0] True None _ 1 -1 "
    '1f 1e400f 99999999999 0i64 "s" Tensor[(1,), float32] List[A] Cons Nil nn.relu add '
    "#[metadata] METADATA: /* */ // \n"
).split(" ")

SEEDS = 25
MUTANTS = 160


def seeds():
    """Programs of all kinds, and one with constants in a metadata section."""
    for seed in range(SEEDS):
        rng = random.Random(seed)
        yield RandomProgram(rng, typed=bool(seed % 2)).module().astext()
    values = [relay.Constant(np.arange(k, dtype="int16")) for k in range(3)]
    yield relay.IRModule.from_expr(relay.Tuple(values)).astext()


def mutate(text, rng):
    """Text with one to three changes."""
    for _ in range(rng.randrange(1, 4)):
        begin = rng.randrange(len(text) + 1)
        end = min(len(text), begin + rng.choice([0, 1, 1, 2, 10, 50]))
        kind = rng.randrange(6)
        if kind == 0:
            text = text[:begin]
        elif kind == 1:
            text = text[:begin] + text[end:]
        elif kind == 2:
            text = text[:begin] + rng.choice(TOKENS) + text[begin:]
        elif kind == 3:
            text = (
                text[:begin] + chr(rng.choice([0, 10, 34, 37, 92, 127, 233, 0x1F600])) + text[end:]
            )
        elif kind == 4:
            other = rng.randrange(len(text) + 1)
            text = text[:begin] + text[other : other + rng.randrange(40)] + text[begin:]
        else:
            text = text[:begin] + text[begin:end] * rng.randrange(2, 5) + text[end:]
    return text


@pytest.mark.parametrize("index", range(SEEDS + 1))
def test_mutants(index):
    text = list(seeds())[index]
    rng = random.Random(index)
    parsed = 0
    for _ in range(MUTANTS):
        mutant = mutate(text, rng)
        try:
            mod = relay.parse(mutant)
        except RelayError as error:
            assert str(error)
            continue
        parsed += 1
        check_program(mod)
    assert parsed < MUTANTS


def check_program(mod):
    """A program that was read can be typed or is rejected, and its text gives an equal one."""
    try:
        relay.transform.InferType()(mod)
    except RelayError as error:
        assert str(error)
    try:
        text = mod.astext()
    except RelayError:
        return
    assert tvm_ffi.structural_equal(mod, relay.parse(text))


if __name__ == "__main__":
    tvm.testing.main()

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
"""Models of transformers generate the same tokens when compiled."""

import subprocess
import sys

import pytest
import torch
import tvm.testing

from helpers.grids import is_full
from helpers.relax_modules import cpu

pytest.importorskip("transformers")

from examples import generate as example
from examples._random import seeded

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

COUNT = 20
# One layer halves the time of a test.
QUICK = {"gpt2": {"n_layer": 1}, "t5": {"seed": 2, "num_layers": 1, "initializer_factor": 3.0}}
NAMES = list(example.MODELS if is_full() else QUICK)


class Case:
    """A model, its inputs and its compiled form."""

    def __init__(self, name):
        self.model = example.make(name, **({} if is_full() else QUICK[name]))
        self.prompt, self.inputs = example.example_inputs(name)
        options = {"target": cpu(), "compare": is_full()}
        self.encoded = ()
        if self.inputs.numel():
            self.encoder = example.compile_encoder(self.model, self.inputs, **options)
            self.encoded = self.encoder.run(self.inputs)
        capacity = self.prompt.shape[1] + COUNT - 1
        self.decoder = example.compile_decoder(
            self.model,
            1,
            capacity,
            self.encoded,
            has_prompt=self.prompt.shape[1] > 1,
            **options,
        )

    def generate(self, *arguments, **options):
        return example.generate(
            self.decoder, self.prompt, *arguments, encoded=self.encoded, **options
        )

    def expected(self, count=COUNT, **options):
        return example.expected(self.model, self.prompt, self.inputs, count, **options)


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    return Case(request.param)


def test_greedy_search(case):
    expected = case.expected()
    # A model that repeats one token would hide errors.
    assert len(expected.unique()) > 2
    assert case.generate(COUNT).tolist() == expected.tolist()


def test_sampling(case):
    with seeded(0):
        expected = case.expected(temperature=0.7, top_k=20)
    assert case.generate(COUNT, example.sampling(0, 0.7, 20)).tolist() == expected.tolist()
    other = case.generate(COUNT, example.sampling(1, 5.0, 90)).tolist()
    assert other != expected.tolist()


def test_the_end(case):
    tokens = case.expected()[0]
    end = int(tokens[-4])
    first = case.prompt.shape[1] + tokens[case.prompt.shape[1] :].tolist().index(end)
    assert case.generate(COUNT, end=end)[0].tolist() == tokens[: first + 1].tolist()


def test_the_cache_is_updated_in_place(case):
    for compiled in filter(None, (case.decoder.prefill, case.decoder.step)):
        assert compiled.report.equal is not False
        names = [spec.name for spec in compiled.inputs if spec.name.startswith("cache")]
        assert list(compiled.manifest.updates) == names
        assert "update-in-place" in compiled.report.fixes
    places = [tensor.data_ptr() for tensor in case.decoder.cache]
    before = [tensor.clone() for tensor in case.decoder.cache]
    case.generate(COUNT, example.sampling(2))
    assert [tensor.data_ptr() for tensor in case.decoder.cache] == places
    assert not any(map(torch.equal, before, case.decoder.cache))


def test_a_full_cache(case):
    row, position = torch.zeros(1, 1, dtype=torch.int64), torch.tensor(24 + 1000)
    before = [tensor.clone() for tensor in case.decoder.cache]
    with pytest.raises(AssertionError, match="index 1024 is out of range for axis"):
        case.decoder.step.run(row, position, *case.decoder.cache, *case.encoded)
    assert all(map(torch.equal, before, case.decoder.cache))


@pytest.mark.skipif(not is_full(), reason="the quick tier compiles the same model above")
def test_the_command():
    command = [sys.executable, "-m", "examples.generate", "llama", "--sample", "--count", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours, theirs = (line.partition(" ")[2].strip() for line in done.stdout.splitlines()[-2:])
    assert ours == theirs
    assert ours.count(",") == 10


if __name__ == "__main__":
    tvm.testing.main()

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
"""Files of parameters."""

import struct

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing

from helpers.relay_json import tensor_blob
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

MAGIC = 0xF7E58D4F05049CB7

PARAMS = {
    "weight": np.arange(6, dtype="float32").reshape(2, 3),
    "scalar": np.array(-3, "int64"),
    "mask": np.array([True, False, True]),
    "empty": np.zeros((0, 4), "float16"),
    "größe": np.array([[255]], "uint8"),
}


def blob(params: dict[str, np.ndarray]) -> bytes:
    """The file that TVM writes, made independently of the writer under test."""
    names = [name.encode() for name in params]
    head = struct.pack("<QQQ", MAGIC, 0, len(params))
    listed = b"".join(struct.pack("<Q", len(name)) + name for name in names)
    tensors = b"".join(map(tensor_blob, params.values()))
    return head + listed + struct.pack("<Q", len(params)) + tensors


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        np.testing.assert_array_equal(actual[name], array, strict=True)


def test_read():
    assert_same(relay.load_params(blob(PARAMS)), PARAMS)


def test_write_gives_the_same_bytes():
    assert relay.save_params(PARAMS) == blob(PARAMS)


def test_no_parameters():
    assert relay.load_params(blob({})) == {}


def test_bfloat16_and_strided_arrays():
    params = {"b": np.ones(3, ml_dtypes.bfloat16), "t": np.arange(6.0).reshape(2, 3).T}
    assert_same(relay.load_params(relay.save_params(params)), params)


def test_files_of_this_version_of_tvm():
    params = {name: PARAMS[name] for name in ("weight", "scalar", "empty")}
    data = tvm.runtime.save_param_dict({k: tvm.runtime.tensor(v) for k, v in params.items()})
    read = relay.load_params(data)
    assert_same({name: read[name] for name in params}, params)
    back = tvm.runtime.load_param_dict(relay.save_params(params))
    assert_same({name: back[name].numpy() for name in params}, params)


def test_arrays_do_not_share_the_file():
    data = bytearray(blob(PARAMS))
    read = relay.load_params(data)
    data[:] = bytes(len(data))
    assert_same(read, PARAMS)


def patched(offset: int, value: int) -> bytes:
    data = bytearray(blob({"w": np.zeros(2, "float32")}))
    data[offset : offset + 8] = struct.pack("<Q", value)
    return bytes(data)


GOOD = blob({"w": np.zeros(2, "float32")})
TENSOR = 24 + 8 + 1 + 8  # where the tensor begins

MALFORMED = {
    "empty": (b"", "byte 0: the file ends within the magic number"),
    "magic": (patched(0, 1), "byte 0: .*magic number.* is missing"),
    "names": (patched(16, 2**64 - 1), "byte 16: .*declares 18446744073709551615 names"),
    "name": (patched(24, 2**62), "byte 24: name 0 declares"),
    "unicode": (GOOD[:32] + b"\xff" + GOOD[33:], "name 0 is not text in UTF-8"),
    "count": (patched(33, 2), "1 names and 2 tensors"),
    "tensor": (patched(TENSOR, 1), "byte 41: 'w': .*magic number"),
    "dims": (patched(TENSOR + 24, 2**31 - 1), "2147483647 dimensions"),
    "extent": (patched(TENSOR + 32, 2**62), "extent"),
    "size": (patched(TENSOR + 40, 2**40), "declares 1099511627776 bytes"),
    "cut": (GOOD[:-1], "within its elements: expected 8 bytes, found 7"),
    "more": (GOOD + b"x", "1 bytes follow"),
    "twice": (GOOD[:16] + struct.pack("<QQsQsQ", 2, 1, b"w", 1, b"w", 2) + GOOD[TENSOR:] * 2,
              "'w' occurs twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_file(name):
    data, message = MALFORMED[name]
    with pytest.raises(RelayError, match=message):
        relay.load_params(data)


def test_every_truncation_is_an_error():
    data = blob(PARAMS)
    for size in range(len(data)):
        with pytest.raises(RelayError, match="byte"):
            relay.load_params(data[:size])


def test_mutants_are_read_or_rejected():
    rng = np.random.default_rng(0)
    data, rejected = blob(PARAMS), 0
    for _ in range(3000):
        mutant = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 5)):
            mutant[at] = rng.choice([0, 1, 127, 128, 255])
        try:
            relay.load_params(bytes(mutant))
        except RelayError as error:
            assert "byte" in str(error) or "NumPy has no shape" in str(error)
            rejected += 1
    assert 1000 < rejected < 3000


if __name__ == "__main__":
    tvm.testing.main()

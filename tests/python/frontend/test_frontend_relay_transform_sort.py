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
"""Relay operators that sort, search and transform, and those of sparse tensors: values."""

import numpy as np
import pytest
import tvm.testing

from helpers.relax_modules import integers
from helpers.relay_checks import check_program, check_results, run_program
from tvm_fixes.errors import UnsupportedOperatorError


def test_sort_and_argsort():
    x = integers(3, 5, 2)
    order = np.argsort(x, 1, kind="stable")
    check_program(
        {
            "sort(%x0)": np.sort(x),
            "sort(%x0, axis=0, is_ascend=0)": -np.sort(-x, 0),
            'argsort(%x0, axis=1, dtype="int64")': order,
            'argsort(%x0, axis=-2, is_ascend=0, dtype="int32")': np.argsort(
                -x, 1, kind="stable"
            ).astype("int32"),
            'argsort(%x0, axis=1, dtype="float32")': order.astype("float32"),
            "argsort(%x0, axis=1)": order.astype("int32"),
        },
        x,
    )


def test_topk():
    x = np.random.default_rng(0).permutation(30).reshape(3, 10).astype("float32")
    down, up = np.argsort(-x, 1), np.argsort(x, 0)
    check_program(
        {
            'topk(%x0, k=4, dtype="int64").0': -np.sort(-x)[:, :4],
            'topk(%x0, k=4, dtype="int64").1': down[:, :4],
            'topk(%x0, k=2, axis=0, is_ascend=1, ret_type="values")': np.sort(x, 0)[:2],
            'topk(%x0, k=2, axis=0, is_ascend=1, ret_type="indices", dtype="int32")': (
                up[:2].astype("int32")
            ),
            'topk(%x0, k=0, ret_type="values")': -np.sort(-x),
        },
        x,
    )


def test_searchsorted():
    sequence, values = np.array([1, 3, 3, 7], "float32"), integers(2, 3)
    many = np.sort(integers(2, 4, seed=1))
    rows = np.stack([np.searchsorted(many[i], values[i]) for i in range(2)])
    check_program(
        {
            "searchsorted(%x0, %x1)": np.searchsorted(sequence, values).astype("int32"),
            'searchsorted(%x0, %x1, right=1, dtype="int64")': np.searchsorted(
                sequence, values, "right"
            ),
            "searchsorted(%x2, %x1)": rows.astype("int32"),
        },
        sequence,
        values,
        many,
    )


@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique(is_sorted):
    x = np.array([5, 1, 5, 3, 1, 1, 9], "int32")
    values, first, inverse, counts = np.unique(x, True, True, True)
    if not is_sorted:
        order = np.argsort(first)
        values, first, counts = values[order], first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    got = run_program(f"unique(%x0, sorted={int(is_sorted)}, return_counts=1)", x)
    count = len(values)
    valid = [got[0][:count], got[1][:count], got[2], got[3], got[4][:count]]
    expected = [values, first, inverse, [count], counts]
    check_results(valid, [np.asarray(part, "int32") for part in expected])
    assert [part.shape for part in got] == [(7,), (7,), (7,), (1,), (7,)]


def test_sparse_reshape():
    at = np.array([[0, 0, 0], [0, 1, 4], [1, 0, 2], [1, 2, 3]], "int32")
    old, new = np.array([2, 3, 5], "int32"), np.array([10, -1], "int32")
    flat = np.ravel_multi_index(tuple(at.T), (2, 3, 5))
    moved = np.stack(np.unravel_index(flat, (10, 3)), 1).astype("int32")
    got = run_program("sparse_reshape(%x0, %x1, %x2)", at, old, new)
    check_results(got, [moved, np.array([10, 3], "int32")])


def test_dft():
    bodies, inputs = {}, []
    for length in (1, 7, 8):
        x, y = integers(2, 3, length), integers(2, 3, length, seed=1)
        call = f"dft(%x{len(inputs)}, %x{len(inputs) + 1}"
        inputs += [x, y]
        bodies[f"{call}).0"] = np.fft.fft(x + 1j * y).real.astype("float32")
        bodies[f"{call}).1"] = np.fft.fft(x + 1j * y).imag.astype("float32")
        bodies[f"{call}, inverse=1).0"] = np.fft.ifft(x + 1j * y).real.astype("float32")
        bodies[f"{call}, inverse=1).1"] = np.fft.ifft(x + 1j * y).imag.astype("float32")
    check_program(bodies, *inputs, atol=1e-4)


@pytest.mark.parametrize("onesided, normalized", [(1, 0), (0, 1)])
def test_stft(onesided, normalized):
    torch = pytest.importorskip("torch")
    x, window = integers(2, 21), np.hamming(6).astype("float32")
    expected = torch.stft(
        torch.from_numpy(x),
        n_fft=6,
        hop_length=4,
        window=torch.from_numpy(window),
        center=False,
        normalized=bool(normalized),
        onesided=bool(onesided),
        return_complex=True,
    )
    body = "stft(%x0, %x1, n_fft=6, hop_length=4, win_length=6, "
    body += f"onesided={onesided}, normalized={normalized})"
    check_results([run_program(body, x, window)], [torch.view_as_real(expected).numpy()], atol=1e-4)


def test_stft_of_one_signal():
    x, window = integers(9), np.ones(3, "float32")
    frames = np.stack([x[i : i + 3] for i in range(0, 6, 2)], 1)
    # The period of the waves is the length of the window.
    waves = np.exp(-2j * np.pi * np.outer(np.arange(3), np.arange(3)) / 3)
    expected = waves @ frames
    body = "stft(%x0, %x1, n_fft=4, hop_length=2, win_length=3)"
    result = np.stack([expected.real, expected.imag], -1).astype("float32")
    check_results([run_program(body, x, window)], [result], atol=1e-5)


def test_sparse_fill_empty_rows_is_rejected():
    at, values, shape = np.zeros((2, 2), "int64"), np.zeros(2, "int64"), np.zeros(2, "int64")
    with pytest.raises(UnsupportedOperatorError, match="depend on the values"):
        run_program("sparse_fill_empty_rows(%x0, %x1, %x2, 0i64)", at, values, shape)


if __name__ == "__main__":
    tvm.testing.main()

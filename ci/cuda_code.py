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
"""Check the CUDA kernels in a library: ``python cuda_code.py MODEL.so ARCH``.

The library must contain their compiled code for the architecture, and not their source.
"""

import struct
import sys
from pathlib import Path

# The ELF header's e_machine of NVIDIA's CUDA.
_CUDA = 190


def cubins(library: bytes) -> list[bytes]:
    """The CUDA ELF files in `library`."""
    found = []
    start = library.find(b"\x7fELF", 1)
    while start >= 0:
        (machine,) = struct.unpack_from("<H", library, start + 18)
        if machine == _CUDA:
            (sections,) = struct.unpack_from("<Q", library, start + 40)
            size, count = struct.unpack_from("<HH", library, start + 58)
            found.append(library[start : start + sections + size * count])
        start = library.find(b"\x7fELF", start + 1)
    return found


if __name__ == "__main__":
    path, arch = sys.argv[1:]
    library = Path(path).read_bytes()
    code = cubins(library)
    assert code, f"{path}: no code for CUDA"
    kernels = {
        name.decode()
        for cubin in code
        for name in cubin.split(b"\0")
        if name.startswith(b".text.") and name.endswith(b"_kernel")
    }
    assert kernels, f"{path}: no kernels"
    assert b"__global__" not in library, f"{path}: contains the source of its kernels"
    assert all(arch.encode() in cubin for cubin in code), f"{path}: not for {arch}"
    print(
        f"{path}: code for {arch}: {', '.join(sorted(k.removeprefix('.text.') for k in kernels))}"
    )

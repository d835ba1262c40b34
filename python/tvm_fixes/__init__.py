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
"""The fixes that Apache TVM lacks, as compiler passes.

Importing this package loads the native library and puts the operator fixes in force, for every
pipeline of the process. ``TVM_FIXES_DISABLE=id,id`` turns fixes off.
"""

from importlib import metadata as _metadata

from . import _ffi

_ffi.load()

from . import frontend, testing, transform  # noqa: E402
from .compiler import build, compile  # noqa: E402
from .errors import CompileError, VerifyError  # noqa: E402
from .lifting import lift  # noqa: E402
from .pipeline import pipeline  # noqa: E402
from .pipeline import register as _register_pipeline  # noqa: E402
from .relax.legalize import arithmetic as _arithmetic  # noqa: E402
from .relax.legalize import average_pool as _average_pool  # noqa: E402
from .relax.legalize import batch_norm as _batch_norm  # noqa: E402
from .relax.legalize import comparison as _comparison  # noqa: E402
from .relax.legalize import creation as _creation  # noqa: E402
from .relax.legalize import gather as _gather  # noqa: E402
from .relax.legalize import layout_transform as _layout_transform  # noqa: E402
from .relax.legalize import max_pool as _max_pool  # noqa: E402
from .relax.legalize import nll_loss as _nll_loss  # noqa: E402
from .relax.legalize import norms as _norms  # noqa: E402
from .relax.legalize import pad as _pad  # noqa: E402
from .relax.legalize import pixel_shuffle as _pixel_shuffle  # noqa: E402
from .relax.legalize import pool_window as _pool_window  # noqa: E402
from .relax.legalize import reductions as _reductions  # noqa: E402
from .relax.legalize import regions as _regions  # noqa: E402
from .relax.legalize import reshape as _reshape  # noqa: E402
from .relax.legalize import resize as _resize  # noqa: E402
from .relax.legalize import rms_norm as _rms_norm  # noqa: E402
from .relax.legalize import scatter as _scatter  # noqa: E402
from .relax.legalize import slices as _slices  # noqa: E402
from .relax.legalize import softmax as _softmax  # noqa: E402
from .relax.legalize import strided_slice as _strided_slice  # noqa: E402
from .relax.legalize.conv import forward as _conv  # noqa: E402
from .relax.legalize.conv import transpose as _conv_transpose  # noqa: E402
from .relax.legalize.matmul import tiles as _matmul  # noqa: E402
from .relax.signature_guard import SignatureGuard  # noqa: E402
from .runtime import CompiledModel, LiftedModule  # noqa: E402
from .target import codegen as _codegen  # noqa: E402
from .verifier import Diagnostic, Diagnostics, VerifyEach, verify  # noqa: E402

try:
    __version__ = _metadata.version("tvm-fixes")
except _metadata.PackageNotFoundError:  # a source tree on the search path
    __version__ = "0+unknown"

_arithmetic.register()
_average_pool.register()
_batch_norm.register()
_codegen.register()
_comparison.register()
_conv.register()
_conv_transpose.register()
_creation.register()
_gather.register()
_layout_transform.register()
_matmul.register()
_max_pool.register()
_nll_loss.register()
_norms.register()
_pad.register()
_pixel_shuffle.register()
_pool_window.register()
_reductions.register()
_regions.register()
_reshape.register()
_resize.register()
_rms_norm.register()
_scatter.register()
_slices.register()
_softmax.register()
_strided_slice.register()
_register_pipeline()

__all__ = [
    "CompileError",
    "CompiledModel",
    "Diagnostic",
    "Diagnostics",
    "LiftedModule",
    "SignatureGuard",
    "VerifyEach",
    "VerifyError",
    "__version__",
    "build",
    "compile",
    "frontend",
    "lift",
    "pipeline",
    "testing",
    "transform",
    "verify",
]

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
"""Import of PyTorch programs into Relax: TVM's importers with corrected converters.

``exported_program`` and ``fx`` contain the two importers, ``corrections`` the code they share.
Only exported programs use ``promotion`` (dtypes), ``sizes`` and ``symbols`` (dynamic shapes),
``attention`` and ``quantized``.
"""

from ..dtypes import accumulation_dtype
from .exported_program import ExportedProgramImporter, from_exported_program
from .fx import FXImporter, from_fx
from .recurrent_shapes import recurrent_shapes

__all__ = [
    "ExportedProgramImporter",
    "FXImporter",
    "accumulation_dtype",
    "from_exported_program",
    "from_fx",
    "recurrent_shapes",
]

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
"""Small models of many architectures of transformers, diffusers, timm and torchvision.

Importing this package loads none of these libraries; making a model does.  timm and torchvision may
be installed in the folder that the environment variable ``TVM_FIXES_LIBRARIES`` names, since
transformers behaves differently beside torchvision.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

from .diffusers_models import DIFFUSERS
from .entry import Entry
from .timm_models import TIMM
from .torchvision_models import TORCHVISION
from .transformers_other import OTHER
from .transformers_text import TEXT_MODELS
from .transformers_vision import VISION

__all__ = ["ARCHITECTURES", "is_installed", "use_folder_of"]

ARCHITECTURES: dict[str, Entry] = {
    f"{entry.library}: {name}": entry
    for table in (TEXT_MODELS, VISION, OTHER, DIFFUSERS, TIMM, TORCHVISION)
    for name, entry in table.items()
}
"""Every architecture by library and name."""

_FOLDER = os.environ.get("TVM_FIXES_LIBRARIES", "")


def is_installed(library: str) -> bool:
    """Whether `library` can be imported, perhaps after :func:`use_folder_of`."""
    folders = [_FOLDER] if _FOLDER else []
    return bool(importlib.util.find_spec(library) or PathFinder.find_spec(library, folders))


def use_folder_of(library: str) -> None:
    """Let this process import the libraries in the folder, if `library` is only there."""
    if _FOLDER and not importlib.util.find_spec(library):
        sys.path.append(_FOLDER)

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
"""Lowerings of ``relax.nn.conv*d`` and ``relax.nn.conv*d_transpose``.

Both gather: each output element sums over exactly the kernel taps and data elements that contribute
to it, so no zeros are inserted into the data. They differ only in the indices along a spatial axis:
see :class:`SpatialAxis`.

On a CPU, output channels are vectorized, whatever the layouts (:mod:`.cpu_channels`):

- The kernel is packed with the channels innermost; at compile time if it is constant.
- If its elements are read more than once, the data is copied to a padded, channels-last buffer.
- The sums of a register tile of output columns and channels are computed together: each step
  multiplies one data element by one or more vectors of the kernel.
- The tile is written in the layout of the output.

If a group has too few channels for a vector, columns are vectorized instead (:mod:`.cpu_columns`).
If a convolution without groups has too few, it becomes a matrix product (:mod:`.gemm`).
"""

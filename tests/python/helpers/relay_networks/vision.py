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
"""Networks on images."""

from tvm_fixes import relay

from .builder import Expr, Network, call, relu, scalar


def resnet() -> tuple[Network, Expr]:
    """Residual blocks with batch normalization."""
    net = Network(1)
    x = net.input("data", (1, 3, 16, 16))
    x = relu(net.norm(net.conv(x, "stem", 3, 8), "stem_bn", 8))
    for index, (channels, stride) in enumerate(((8, 1), (16, 2))):
        name, inputs = f"block{index}", 8
        y = net.conv(x, f"{name}.a", inputs, channels, strides=[stride, stride])
        y = relu(net.norm(y, f"{name}.bn_a", channels))
        y = net.norm(net.conv(y, f"{name}.b", channels, channels), f"{name}.bn_b", channels)
        if stride > 1:
            x = net.conv(
                x, f"{name}.skip", inputs, channels, 1, strides=[stride, stride], padding=[0, 0]
            )
        x = relu(call("add", y, x))
    x = call("nn.batch_flatten", call("nn.global_avg_pool2d", x))
    return net, call("nn.softmax", net.dense(x, "fc", 16, 10))


def vgg() -> tuple[Network, Expr]:
    """Convolutions with biases, and dense layers."""
    net = Network(2)
    x = net.input("data", (2, 3, 16, 16))
    inputs = 3
    for index, channels in enumerate((8, 16)):
        x = relu(net.bias(net.conv(x, f"conv{index}", inputs, channels), f"conv{index}", channels))
        x = call("nn.max_pool2d", x, pool_size=[2, 2], strides=[2, 2])
        inputs = channels
    x = call("nn.dropout", call("nn.batch_flatten", x), rate=0.5)
    x = relu(net.dense(relay.TupleGetItem(x, 0), "fc1", 256, 32))
    return net, call("nn.log_softmax", net.dense(x, "fc2", 32, 10))


def dcgan() -> tuple[Network, Expr]:
    """Transposed convolutions from a vector to an image."""
    net = Network(3)
    x = net.input("data", (1, 20))
    weight = net.weight("project.weight", 16 * 4 * 4, 20)
    x = call("reshape", call("nn.dense", x, weight), newshape=[-1, 16, 4, 4])
    for index, (inputs, outputs) in enumerate(((16, 8), (8, 3))):
        weight = net.weight(f"deconv{index}.weight", inputs, outputs, 4, 4)
        attrs = {"strides": [2, 2], "padding": [1, 1], "channels": outputs, "kernel_size": [4, 4]}
        x = call("nn.conv2d_transpose", x, weight, **attrs)
        if index == 0:
            x = relu(net.norm(x, "bn", outputs))
    return net, call("tanh", x)


def inception() -> tuple[Network, Expr]:
    """Branches that are joined along the channels."""
    net = Network(4)
    x = net.input("data", (1, 8, 12, 12))

    def branch(y: Expr, name: str, inputs: int, outputs: int, size: int) -> Expr:
        return relu(net.norm(net.conv(y, name, inputs, outputs, size), f"{name}_bn", outputs))

    for index in range(2):
        name = f"mixed{index}"
        inputs = 8 if index == 0 else 16
        pooled = call(
            "nn.avg_pool2d", x, pool_size=[3, 3], padding=[1, 1], count_include_pad=index == 1
        )
        parts = [
            branch(x, f"{name}.one", inputs, 4, 1),
            branch(branch(x, f"{name}.reduce", inputs, 4, 1), f"{name}.three", 4, 4, 3),
            branch(pooled, f"{name}.pool", inputs, 4, 1),
            branch(x, f"{name}.five", inputs, 4, 5),
        ]
        x = call("concatenate", parts, axis=1)
    x = call("nn.max_pool2d", x, pool_size=[3, 3], strides=[2, 2], padding=[0, 0, 1, 1])
    return net, call("mean", x, axis=[2, 3], keepdims=True)


def squeezenet() -> tuple[Network, Expr]:
    """Fire modules, and a convolution as the classifier."""
    net = Network(5)
    x = net.input("data", (1, 3, 16, 16))
    x = relu(net.bias(net.conv(x, "stem", 3, 8, strides=[2, 2]), "stem", 8))
    for index in range(2):
        name, inputs = f"fire{index}", 8 if index == 0 else 16
        squeezed = net.conv(x, f"{name}.squeeze", inputs, 4, 1, padding=[0, 0])
        squeezed = relu(net.bias(squeezed, f"{name}.squeeze", 4))
        sides = []
        for size in (1, 3):
            part = f"{name}.expand{size}"
            sides.append(relu(net.bias(net.conv(squeezed, part, 4, 8, size), part, 8)))
        x = call("concatenate", sides, axis=1)
    x = relu(net.bias(net.conv(x, "classes", 16, 10, 1), "classes", 10))
    return net, call("nn.softmax", call("nn.batch_flatten", call("nn.global_avg_pool2d", x)))


def unet() -> tuple[Network, Expr]:
    """An encoder and a decoder with connections between them."""
    net = Network(6)
    x = net.input("data", (1, 1, 16, 16))

    def double(y: Expr, name: str, inputs: int, outputs: int) -> Expr:
        y = relu(net.norm(net.conv(y, f"{name}.a", inputs, outputs), f"{name}.bn_a", outputs))
        return relu(net.norm(net.conv(y, f"{name}.b", outputs, outputs), f"{name}.bn_b", outputs))

    first = double(x, "down0", 1, 4)
    second = double(call("nn.max_pool2d", first, pool_size=[2, 2], strides=[2, 2]), "down1", 4, 8)
    middle = double(call("nn.max_pool2d", second, pool_size=[2, 2], strides=[2, 2]), "mid", 8, 16)
    weight = net.weight("up1.weight", 16, 8, 2, 2)
    up = call("nn.conv2d_transpose", middle, weight, strides=[2, 2], channels=8, kernel_size=[2, 2])
    x = double(call("concatenate", [second, up], axis=1), "up1", 16, 8)
    up = net.conv(call("nn.upsampling", x, scale_h=2.0, scale_w=2.0), "up0", 8, 4)
    x = double(call("concatenate", [first, up], axis=1), "up0", 8, 4)
    return net, call("sigmoid", net.bias(net.conv(x, "out", 4, 2, 1), "out", 2))


def yolo_head() -> tuple[Network, Expr]:
    """Boxes, confidences and classes from features, in the style of Darknet."""
    net = Network(7)
    x = net.input("features", (1, 16, 6, 6))
    y = call("vision.yolo_reorg", net.input("passthrough", (1, 4, 12, 12)), stride=2)
    x = call("concatenate", [x, y], axis=1)
    x = call("nn.leaky_relu", net.norm(net.conv(x, "conv", 32, 16), "bn", 16), alpha=0.1)
    anchors, classes = 3, 4
    channels = anchors * (5 + classes)
    x = net.bias(net.conv(x, "detect", 16, channels, 1), "detect", channels)
    x = call("reshape", x, newshape=[1, anchors, 5 + classes, 6, 6])
    parts = call("split", x, indices_or_sections=[2, 4, 5], axis=2)
    xy, wh, confidence, scores = (relay.TupleGetItem(parts, i) for i in range(4))
    wh = call("multiply", call("exp", wh), scalar(0.5))
    scores = call("nn.softmax", scores, axis=2)
    joined = call(
        "concatenate", [call("sigmoid", xy), wh, call("sigmoid", confidence), scores], axis=2
    )
    return net, call("reshape", joined, newshape=[1, -1])


def ssd() -> tuple[Network, Expr]:
    """Two scales of anchor boxes, decoded and suppressed, as from MXNet."""
    net = Network(8)
    x = net.input("data", (1, 3, 16, 16))
    scores, deltas, anchors = [], [], []
    inputs, classes, boxes = 3, 4, 3
    for index, size in enumerate((0.3, 0.6)):
        name = f"scale{index}"
        x = relu(net.bias(net.conv(x, name, inputs, 8, strides=[2, 2]), name, 8))
        inputs = 8
        for kind, found, channels in (("class", scores, classes), ("box", deltas, 4)):
            y = net.conv(x, f"{name}.{kind}", 8, boxes * channels)
            y = net.bias(y, f"{name}.{kind}", boxes * channels)
            y = call("transpose", y, axes=[0, 2, 3, 1])
            found.append(call("nn.batch_flatten", y))
        sizes = [size, size * 1.2]
        anchors.append(call("vision.multibox_prior", x, sizes=sizes, ratios=[1.0, 2.0], clip=True))
    joined = call("concatenate", scores, axis=1)
    joined = call("reshape", joined, newshape=[0, -1, classes])
    joined = call("nn.softmax", call("transpose", joined, axes=[0, 2, 1]), axis=1)
    decoded = call(
        "vision.multibox_transform_loc",
        joined,
        call("concatenate", deltas, axis=1),
        call("concatenate", anchors, axis=1),
        threshold=0.3,
    )
    rows, count = (relay.TupleGetItem(decoded, i) for i in range(2))
    limit, iou = scalar(-1, "int32"), scalar(0.45)
    attrs = {"return_indices": False, "invalid_to_bottom": True, "top_k": 50}
    return net, call("vision.non_max_suppression", rows, count, count, limit, iou, **attrs)

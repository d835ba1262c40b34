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
"""The mainstream exports: how each is made, and its inputs.

Weights are random, and sizes are those of the published models.  Where a class has several sizes,
the usual one is taken.
"""

from functools import partial
from typing import Any

from . import export_tables, export_torch
from .data import Case, Recipe, full, in_bfloat16, integers, normal, picture, sound
from .export_torch import Build, Dynamic
from .models import Model

_IMAGENET = {"low": -2.1, "high": 2.6}


def _onnx(
    name: str,
    kind: str,
    build: Build,
    *cases: Case,
    library: str = "torchvision",
    dynamic: Dynamic | None = None,
    script: bool = False,
    opset: int | None = None,
    variant: str = "",
) -> Model:
    """Describe an export to ONNX; `variant` is int8, dynamic int8 or float16."""
    make: Any = partial(
        export_torch.export, build, cases[0], dynamic=dynamic, script=script, opset=opset
    )
    maker = f"{library}, {'TorchScript' if script else 'torch.export'}"
    if variant == "int8":
        make = partial(export_torch.quantize_static, make, cases[0])
    elif variant:
        change = {"dynamic int8": "quantize_dynamic", "float16": "to_float16"}[variant]
        make = partial(getattr(export_torch, change), make)
    return Model(name, kind, cases, make=make, maker=maker)


def _program(name: str, kind: str, build: Build, case: Case, library: str) -> Model:
    """Describe an exported program of PyTorch, in bfloat16."""
    case = Case({name: in_bfloat16(recipe) for name, recipe in case.inputs.items()})
    narrow = partial(export_torch.narrow, build, "bfloat16")
    make = partial(export_torch.export_program, narrow, case)
    return Model(name, kind, (case,), make=make, maker=f"{library}, PyTorch", suffix=".pt2")


def _table(name: str, kind: str, data: str, *, maps: bool = False, **options: Any) -> Model:
    """Describe a predictor for a table."""
    columns = export_tables.features(data)
    cases = tuple(Case({"input": normal(n, columns, scale=2)}) for n in (100, 1))
    short = kind.rpartition(".")[2]
    make = partial(export_tables.predictor, kind, data, maps=maps, **options)
    if kind.startswith("sklearn"):
        cases = tuple(Case({"X": case.inputs["input"]}) for case in cases)
    return Model(name, f"{short} of {data}", cases, make=make, maker=kind.partition(".")[0])


def _images(*shapes: tuple[int, ...], name: str = "image", **options: Any) -> tuple[Case, ...]:
    return tuple(Case({name: picture(*shape, **(options or _IMAGENET))}) for shape in shapes)


def _text(*sizes: tuple[int, int], vocabulary: int = 30000, pairs: bool = True) -> tuple[Case, ...]:
    cases = []
    for size in sizes:
        inputs: dict[str, Recipe] = {"input_ids": integers(*size, below=vocabulary, low=1000)}
        if pairs:
            inputs["attention_mask"] = full(*size, value=1, dtype="int64")
        cases.append(Case(inputs))
    return tuple(cases)


def _past(tokens: int, past: int) -> Case:
    heads, width = export_torch.WithPast.HEADS, export_torch.WithPast.WIDTH
    inputs: dict[str, Recipe] = {"tokens": integers(1, tokens, below=50257)}
    for layer in range(export_torch.WithPast.LAYERS):
        for what in ("key", "value"):
            inputs[f"{what}_{layer}"] = normal(1, heads, past, width)
    return Case(inputs)


def _classifiers() -> list[Model]:
    names = (
        "mobilenet_v2",
        "mobilenet_v3_large",
        "efficientnet_b0",
        "densenet121",
        "convnext_tiny",
        "swin_t",
        "vit_b_16",
    )
    image = _images((1, 3, 224, 224))
    return [
        _onnx(name, "image classification", partial(export_torch.torchvision, name), *image)
        for name in names
    ]


_RESNET = partial(export_torch.torchvision, "resnet50")
_IMAGE = _images((1, 3, 224, 224))
_BERT = partial(export_torch.transformers, "BertModel", "last_hidden_state", "pooler_output")
_SENTENCES = _text((1, 128), (3, 17))
_TEXT_DIMS = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
WHISPER = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4} | {
    f"{part}_{what}": value
    for part in ("encoder", "decoder")
    for what, value in (("attention_heads", 6), ("ffn_dim", 1536))
}
T5 = {"d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_heads": 8}
_WORDS = tuple(Case({"tokens": integers(*size, below=20000)}) for size in ((1, 100), (3, 25)))
_WORD_DIMS = {"tokens": {0: "batch", 1: "length"}}

EXPORTS: tuple[Model, ...] = (
    _onnx("resnet50", "image classification", _RESNET, *_IMAGE),
    _onnx("resnet50.batch8", "image classification", _RESNET, *_images((8, 3, 224, 224))),
    _onnx(
        "resnet50.dynamic",
        "image classification",
        _RESNET,
        *_images((1, 3, 224, 224), (2, 3, 160, 192)),
        dynamic={"image": {0: "batch", 2: "height", 3: "width"}},
    ),
    _program("resnet50.bfloat16", "image classification", _RESNET, _IMAGE[0], "torchvision"),
    _onnx("resnet50.float16", "image classification", _RESNET, *_IMAGE, variant="float16"),
    _onnx("resnet50.int8", "image classification", _RESNET, *_IMAGE, variant="int8"),
    *_classifiers(),
    _onnx(
        "mobilevit_s",
        "image classification",
        partial(export_torch.timm, "mobilevit_s"),
        *_images((1, 3, 256, 256)),
        library="timm",
    ),
    _onnx(
        "yolov8n",
        "detection",
        partial(export_torch.yolo, "yolov8n"),
        *_images((1, 3, 640, 640), low=0.0, high=1.0),
        library="ultralytics",
    ),
    _onnx("ssdlite320", "detection", export_torch.ssd, *_images((1, 3, 320, 320))),
    _onnx(
        "deeplabv3",
        "segmentation",
        export_torch.deeplab,
        *_images((1, 3, 320, 320)),
    ),
    _onnx("unet", "segmentation", export_torch.unet, *_images((1, 3, 256, 256)), library="U-Net"),
    _onnx(
        "bert",
        "text encoder",
        _BERT,
        *_SENTENCES,
        library="transformers",
        dynamic=_TEXT_DIMS,
    ),
    _program("bert.bfloat16", "text encoder", _BERT, _SENTENCES[0], "transformers"),
    _onnx(
        "bert.float16",
        "text encoder",
        _BERT,
        *_SENTENCES,
        library="transformers",
        dynamic=_TEXT_DIMS,
        variant="float16",
    ),
    _onnx(
        "bert.int8",
        "text encoder",
        _BERT,
        *_SENTENCES,
        library="transformers",
        dynamic=_TEXT_DIMS,
        variant="dynamic int8",
    ),
    _onnx(
        "minilm",
        "sentence encoder",
        partial(
            export_torch.transformers,
            "BertModel",
            "last_hidden_state",
            hidden_size=384,
            num_hidden_layers=6,
            intermediate_size=1536,
        ),
        *_SENTENCES,
        library="transformers",
        dynamic=_TEXT_DIMS,
    ),
    _onnx(
        "gpt2",
        "text decoder with past",
        export_torch.WithPast.make,
        _past(1, 64),
        _past(1, 7),
        library="transformers",
        dynamic={
            f"{what}_{layer}": {2: "past"}
            for layer in range(export_torch.WithPast.LAYERS)
            for what in ("key", "value")
        },
    ),
    _onnx(
        "t5_encoder",
        "text encoder",
        partial(
            export_torch.transformers,
            "T5EncoderModel",
            "last_hidden_state",
            config="T5Config",
            **T5,
        ),
        *_text((1, 64), (2, 19)),
        library="transformers",
        dynamic=_TEXT_DIMS,
    ),
    _onnx(
        "t5_decoder",
        "translation",
        partial(export_torch.t5_decoder, **T5),
        *(
            Case({"encoder": normal(1, n, 512), "decoder_input_ids": integers(1, m, below=32000)})
            for n, m in ((64, 20), (13, 1))
        ),
        library="transformers",
        dynamic={"encoder": {1: "length"}, "decoder_input_ids": {1: "tokens"}},
    ),
    _onnx(
        "whisper_encoder",
        "speech",
        partial(export_torch.whisper, "encoder", **WHISPER),
        Case({"input_features": normal(1, 80, 3000, scale=0.5)}),
        library="transformers",
    ),
    _onnx(
        "whisper_decoder",
        "speech",
        partial(export_torch.whisper, "decoder", **WHISPER),
        *(
            Case({"input_ids": integers(1, n, below=51865), "encoder": normal(1, 1500, 384)})
            for n in (8, 3)
        ),
        library="transformers",
        dynamic={"input_ids": {1: "tokens"}},
    ),
    _onnx(
        "wav2vec2",
        "speech",
        partial(export_torch.transformers, "Wav2Vec2Model", "last_hidden_state"),
        *(Case({"input_values": sound(1, n)}) for n in (16000, 5000)),
        library="transformers",
        dynamic={"input_values": {1: "samples"}},
    ),
    _onnx(
        "clip",
        "images and text",
        partial(export_torch.transformers, "CLIPModel", "logits_per_image", "text_embeds"),
        Case(
            {
                "input_ids": integers(2, 77, below=49000),
                "pixel_values": picture(1, 3, 224, 224, **_IMAGENET),
            }
        ),
        library="transformers",
    ),
    _onnx(
        "lstm_tagger",
        "tagger",
        partial(export_torch.tagger, "LSTM"),
        *_WORDS,
        library="torch",
        dynamic=_WORD_DIMS,
        script=True,
    ),
    _onnx(
        "gru_tagger",
        "tagger",
        partial(export_torch.tagger, "GRU"),
        *_WORDS,
        library="torch",
        dynamic=_WORD_DIMS,
        script=True,
    ),
    _onnx(
        "diffusion_unet",
        "diffusion",
        partial(
            export_torch.diffusers,
            "UNet2DConditionModel",
            block_out_channels=(128, 256, 256),
            down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=768,
        ),
        Case(
            {
                "sample": normal(1, 4, 32, 32),
                "timestep": full(1, value=500, dtype="int64"),
                "encoder_hidden_states": normal(1, 77, 768),
            }
        ),
        library="diffusers",
    ),
    _onnx(
        "vae_decoder",
        "diffusion",
        export_torch.vae_decoder,
        Case({"latent": normal(1, 4, 16, 16)}),
        library="diffusers",
    ),
    _table("lightgbm", "lightgbm.LGBMClassifier", "breast_cancer", n_estimators=200, verbose=-1),
    _table("xgboost", "xgboost.XGBRegressor", "diabetes", n_estimators=200),
    _table("forest", "sklearn.ensemble.RandomForestClassifier", "digits", n_estimators=100),
    _table("boosting", "sklearn.ensemble.HistGradientBoostingClassifier", "wine", max_iter=50),
    _table("logistic", "sklearn.linear_model.LogisticRegression", "iris", max_iter=1000),
    _table(
        "logistic.maps", "sklearn.linear_model.LogisticRegression", "iris", maps=True, max_iter=1000
    ),
    _table("svc", "sklearn.svm.SVC", "breast_cancer", probability=True),
    _table("mlp", "sklearn.neural_network.MLPClassifier", "digits", max_iter=60),
    _table("knn", "sklearn.neighbors.KNeighborsRegressor", "diabetes"),
)
"""The exports."""

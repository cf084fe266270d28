"""check_export.py FORMAT PATH FOLDER: runs what was exported to PATH and compares it with what FOLDER holds.

FOLDER/about.json: the shape of the images and the number of classes; FOLDER/images and FOLDER/logits: f32. FORMAT is
onnx (checker, shape inference and runtime). Exit status 77: the peer is
not installed, said in a line."""

import json
import pathlib
import sys

TOLERANCE = 1e-4  # of the largest logit


def skip(error):
    print(f"SKIP: {error}")
    sys.exit(77)


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


def check_onnx(path, images, logits):
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        skip(error)
    model = onnx.load(path)
    onnx.checker.check_model(str(path), full_check=True)
    assert model.opset_import[0].version >= 13
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info:
        assert value.type.tensor_type.shape.dim[0].dim_param == "N" or value.name.endswith("/shape"), value
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for n in (len(images), 1):
        have = session.run(["logits", "probabilities"], {"images": images[:n]})
        compare(f"logits of {n}", have[0], logits[:n])
        compare(f"probabilities of {n}", have[1], softmax(logits[:n]))


def main():
    form, path, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    try:
        import numpy as np
    except ImportError as error:
        skip(error)
    about = json.loads((folder / "about.json").read_text())
    images = np.fromfile(folder / "images", np.float32).reshape(about["images"])
    logits = np.fromfile(folder / "logits", np.float32).reshape(len(images), about["classes"])
    {"onnx": check_onnx}[form](path, images, logits)


main()

#!/usr/bin/env python3
"""Keras's speed, on TensorFlow, at the step of peer_torch.py: forward, backward and SGD on one fixed batch, as a
tf.function. Prints one JSON object. bf16 is the policy mixed_bfloat16.

Runs in one process, on the CPUs that its caller's affinity leaves it. TensorFlow stores channels last in any case.
"""
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import peer
import tensorflow as tf
from peer_keras_networks import NETWORKS


def make_step(args):
    keras.utils.set_random_seed(0)
    if args.dtype == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    images = tf.random.uniform((args.batch, 28, 28, 1))
    labels = tf.random.uniform((args.batch,), maxval=10, dtype=tf.int32)
    net, sgd = NETWORKS[args.model](), keras.optimizers.SGD(0.2)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sgd.build(net.trainable_variables)

    @tf.function(jit_compile=args.compile)
    def step():
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, net(images, training=True))
        sgd.apply(tape.gradient(loss, net.trainable_variables))
        return loss

    return lambda: step().numpy(), net


def main():
    args = peer.make_parser(__doc__, NETWORKS, "XLA").parse_args()
    at_start = peer.memory("VmRSS")
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    step, net = make_step(args)
    parameters = sum(int(tf.size(variable)) for variable in net.trainable_variables)
    if args.parameters:
        print(json.dumps({"parameters": parameters}))
        return
    measured = peer.measure(step, args)
    version = f"{keras.__version__} (TensorFlow {tf.__version__})"
    peer.print_report(args, version, parameters, measured, measured[2], peer.memory("VmHWM"), at_start)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        peer.fail(error)

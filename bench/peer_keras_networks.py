"""The networks of the tables as Keras's users write them; the same as those of peer_torch_networks.py."""
import keras
from keras import layers


def sequential(*parts):
    return keras.Sequential([keras.Input((28, 28, 1)), *parts])


def functional(body):
    """body: from the images to the last features; the classifier follows."""
    images = keras.Input((28, 28, 1))
    return keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(body(images))))


def lenet():
    return sequential(
        layers.Conv2D(20, 3, activation="relu"), layers.AveragePooling2D(2),
        layers.Conv2D(50, 5, activation="relu"), layers.AveragePooling2D(2),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10))


def keras_cnn():
    return sequential(
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2),
        layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10))


def norm_conv(x, filters, strides=1):
    return layers.BatchNormalization()(layers.Conv2D(filters, 3, strides, padding="same")(x))


def residual(x, filters, strides=1):
    """relu(body(x) + shortcut(x))"""
    body = norm_conv(layers.ReLU()(norm_conv(x, filters, strides)), filters)
    plain = x.shape[-1] == filters and strides == 1
    shortcut = x if plain else layers.Conv2D(filters, 1, strides)(x)
    return layers.ReLU()(layers.Add()([body, shortcut]))


def resnet18():
    def body(images):
        x = residual(residual(layers.ReLU()(norm_conv(images, 64)), 64), 64)
        for filters in (128, 256, 512):
            x = residual(residual(x, filters, 2), filters)
        return x
    return functional(body)


def wide(x, filters):
    """body(x) + shortcut(x)"""
    body = layers.Dropout(0.01)(layers.ReLU()(norm_conv(x, filters)))
    shortcut = x if x.shape[-1] == filters else layers.Conv2D(filters, 1)(x)
    return layers.Add()([layers.ReLU()(norm_conv(body, filters)), shortcut])


def wrn_16_10():
    def body(images):
        x = layers.ReLU()(norm_conv(images, 16))
        for filters in (160, 320, 640):
            if filters > 160:
                x = layers.MaxPooling2D(2)(x)
            x = wide(wide(x, filters), filters)
        return x
    return functional(body)


def mlp():
    return sequential(layers.Flatten(), layers.Dense(512, activation="relu"), layers.Dense(512, activation="relu"),
                      layers.Dense(10))


def vgg():
    parts = []
    for filters in (48, 96):
        for _ in range(2):
            parts += [layers.Conv2D(filters, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
        parts.append(layers.MaxPooling2D(2))
    return sequential(*parts, layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(10))


def resnet20():
    def body(images):
        x = layers.ReLU()(norm_conv(images, 16))
        for filters in (16, 32, 64):
            for block in range(3):
                x = residual(x, filters, 2 if block == 0 and filters > 16 else 1)
        return x
    return functional(body)


NETWORKS = {"lenet": lenet, "keras-cnn": keras_cnn, "resnet18": resnet18, "wrn-16-10": wrn_16_10,
            "mlp": mlp, "vgg": vgg, "resnet20": resnet20}

"""The networks of the tables as PyTorch's users write them: the four references, which `lockstep summary --model NAME`
lists, and those of networks/."""
from torch import nn


def lenet():
    net = nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    for p in net.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.01)
        else:
            nn.init.zeros_(p)
    return net


def keras_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(), nn.Linear(64, 10))


def norm_conv(channels, filters, stride=1):
    return [nn.Conv2d(channels, filters, 3, stride=stride, padding=1), nn.BatchNorm2d(filters)]


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))"""

    def __init__(self, channels, filters, stride=1):
        super().__init__()
        self.body = nn.Sequential(*norm_conv(channels, filters, stride), nn.ReLU(), *norm_conv(filters, filters))
        plain = channels == filters and stride == 1
        self.shortcut = nn.Identity() if plain else nn.Conv2d(channels, filters, 1, stride=stride)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def resnet18():
    layers = [*norm_conv(1, 64), nn.ReLU(), Residual(64, 64), Residual(64, 64)]
    for channels in (64, 128, 256):
        layers += [Residual(channels, 2 * channels, stride=2), Residual(2 * channels, 2 * channels)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Wide(nn.Module):
    """body(x) + shortcut(x)"""

    def __init__(self, channels, filters):
        super().__init__()
        self.body = nn.Sequential(*norm_conv(channels, filters), nn.ReLU(), nn.Dropout(0.01),
                                  *norm_conv(filters, filters), nn.ReLU())
        self.shortcut = nn.Identity() if channels == filters else nn.Conv2d(channels, filters, 1)

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def wrn_16_10():
    layers = [*norm_conv(1, 16), nn.ReLU()]
    for channels, filters in ((16, 160), (160, 320), (320, 640)):
        layers += [nn.MaxPool2d(2)] if channels > 16 else []
        layers += [Wide(channels, filters), Wide(filters, filters)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 10))


def fast_conv(channels, filters):
    conv = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return conv


class Fast(nn.Module):
    """body(x) + x"""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(2) for layer in (
            fast_conv(channels, channels), nn.BatchNorm2d(channels), nn.ReLU())))

    def forward(self, x):
        return self.body(x) + x


def fast_cnn():
    dense = nn.Linear(256, 10)
    nn.init.xavier_uniform_(dense.weight)
    nn.init.zeros_(dense.bias)
    return nn.Sequential(
        fast_conv(1, 32), nn.BatchNorm2d(32), nn.ReLU(), fast_conv(32, 64), nn.MaxPool2d(2), nn.BatchNorm2d(64), nn.ReLU(),
        fast_conv(64, 128), nn.MaxPool2d(2), nn.BatchNorm2d(128), nn.ReLU(), Fast(128), fast_conv(128, 256), nn.MaxPool2d(2),
        nn.BatchNorm2d(256), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), dense)


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def vgg():
    layers, channels = [], 1
    for filters in (48, 96):
        layers += [*norm_conv(channels, filters), nn.ReLU(), *norm_conv(filters, filters), nn.ReLU(), nn.MaxPool2d(2)]
        channels = filters
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, 10))


def resnet20():
    layers = [*norm_conv(1, 16), nn.ReLU(), *(Residual(16, 16) for _ in range(3))]
    for channels in (16, 32):
        filters = 2 * channels
        layers += [Residual(channels, filters, stride=2), Residual(filters, filters), Residual(filters, filters)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


NETWORKS = {"lenet": lenet, "keras-cnn": keras_cnn, "resnet18": resnet18, "wrn-16-10": wrn_16_10,
            "fast-cnn": fast_cnn, "mlp": mlp, "vgg": vgg, "resnet20": resnet20}

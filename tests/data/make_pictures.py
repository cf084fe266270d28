#!/usr/bin/env python3
"""make_pictures.py FOLDER: writes the pictures of tests/data/pictures, and as PGM and PPM what Pillow makes of them. JPEG
files, and what they are decoded to, are those of Pillow's libjpeg-turbo (3.2.0 for Pillow 13.0)."""
import math
import random
import struct
import sys
import zlib

from PIL import Image, ImageChops

WIDTH, HEIGHT = 37, 29
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def draw():
    picture = Image.new("RGB", (WIDTH, HEIGHT))
    noise = random.Random(1)
    for y in range(HEIGHT):
        for x in range(WIDTH):
            disc = (x - 18) ** 2 + (y - 14) ** 2 < 80
            picture.putpixel((x, y), (int(127 + 120 * math.sin(x / 5 + y / 9)), (x * 7 + y * 3) % 256,
                                      255 if disc else noise.randrange(60)))
    return picture


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def interlaced(picture):
    """Adam7, which Pillow reads and does not write."""
    rows = b""
    for x0, y0, dx, dy in PASSES:
        for y in range(y0, HEIGHT, dy):
            rows += b"\0" + b"".join(bytes(picture.getpixel((x, y))) for x in range(x0, WIDTH, dx))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def main():
    out = sys.argv[1] + "/"
    color = draw()
    gray = color.convert("L")
    color.save(out + "color.png")
    gray.save(out + "gray.png")
    gray.point(lambda value: 255 if value > 128 else 0).convert("1").save(out + "one_bit.png")
    palette = color.quantize(16)
    palette.save(out + "palette.png")
    palette.save(out + "transparent.png", transparency=3)
    alpha = color.copy()
    alpha.putalpha(gray)
    alpha.save(out + "alpha.png")
    deep = Image.new("I;16", (WIDTH, HEIGHT))
    for y in range(HEIGHT):
        for x in range(WIDTH):
            deep.putpixel((x, y), (x * 1771 + y * 911) % 65536)
    deep.save(out + "sixteen_bits.png")
    with open(out + "interlaced.png", "wb") as file:
        file.write(interlaced(color))
    gray.save(out + "gray.jpg", quality=80)
    color.save(out + "color.jpg", quality=75)
    color.save(out + "progressive.jpg", quality=85, progressive=True, subsampling=0)
    gray_ink = ImageChops.multiply(gray, Image.new("L", gray.size, 100))
    Image.merge("CMYK", [*ImageChops.invert(color).split(), gray_ink]).save(out + "cmyk.jpg")
    for name in ("one_bit.png", "gray.jpg", "color.jpg"):
        Image.open(out + name).convert("L").save(out + name + ".pgm")
    for name in ("palette.png", "alpha.png", "color.png", "color.jpg", "progressive.jpg", "cmyk.jpg"):
        Image.open(out + name).convert("RGB").save(out + name + ".ppm")
    for height, width in ((11, 12), (28, 28), (50, 90), (29, 20)):
        color.resize((width, height), Image.BILINEAR).save(f"{out}color.png.{height}x{width}.ppm")
    gray.resize((28, 28), Image.BILINEAR).save(out + "gray.png.28x28.pgm")


if __name__ == "__main__":
    main()

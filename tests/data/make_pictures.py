#!/usr/bin/env python3
"""Writes tests/data/pictures: small PNG and JPEG files and what Pillow 13.0 (libjpeg-turbo 3) makes of them, as PPM and PGM. Run where Pillow and numpy are:
tests/data/make_pictures.py. `fit-*` are Resize(N) and CenterCrop(N) of torchvision on PIL images, in Pillow's words."""
import pathlib

import numpy
from PIL import Image

out = pathlib.Path(__file__).parent / "pictures"
out.mkdir(exist_ok=True)
draw = numpy.random.default_rng(7)


def picture(height, width, channels):
    """Waves under noise, so that neither rows nor channels are alike."""
    y, x, c = numpy.mgrid[0:height, 0:width, 0:channels]
    waves = 127 + 90 * numpy.sin(0.35 * x + 0.9 * c) * numpy.cos(0.27 * y - 0.5 * c)
    return numpy.clip(waves + draw.integers(-30, 30, (height, width, channels)), 0, 255).astype(numpy.uint8)


def keep(name, image):
    image.save(out / f"{name}.{'pgm' if image.mode == 'L' else 'ppm'}")


def fitted(image, height, width):
    w, h = image.size
    size = (height * w // h, height) if w * height > h * width else (width, width * h // w)
    image = image.resize(size, Image.BILINEAR)
    left, top = round((size[0] - width) / 2), round((size[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


rgb = Image.fromarray(picture(9, 13, 3))
grey = Image.fromarray(picture(7, 10, 1)[:, :, 0])
rgba = Image.fromarray(numpy.concatenate([numpy.asarray(rgb), picture(9, 13, 1)], axis=2))
for name, image in [("rgb", rgb), ("grey", grey), ("palette", rgb.quantize(16)), ("rgba", rgba)]:
    image.save(out / f"{name}.png")
    keep(name + "-png", image if image.mode == "L" else image.convert("RGB"))
for name, image, options in [("rgb", rgb, {"quality": 85}), ("grey", grey, {"quality": 85}),
                             ("progressive", rgb, {"quality": 90, "progressive": True, "subsampling": 0})]:
    image.save(out / f"{name}.jpg", **options)
    keep(name + "-jpg", Image.open(out / f"{name}.jpg"))
rgb.convert("CMYK").save(out / "cmyk.jpg")

wide = Image.fromarray(picture(41, 60, 3))
wide.save(out / "wide.png")
for name, image, size in [("down", wide, (16, 16)), ("up", rgb, (24, 24)), ("tall", wide, (30, 11)), ("odd", wide, (23, 22))]:
    keep("fit-" + name, fitted(image, *size))
keep("fit-luma", fitted(wide.convert("L"), 16, 16))
keep("fit-repeated", fitted(grey.convert("RGB"), 7, 7))

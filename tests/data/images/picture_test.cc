// Tests that PNG and JPEG files are decoded and scaled as Pillow does, byte for byte. tests/data/make_pictures.py made the files.
#include "data/images/picture.h"

#include "tests/data/images/support_images.h"

namespace spillway::data::picture_test {
namespace {

using test::error_of;

std::span<const u8> span_of(const std::string& bytes) { return {reinterpret_cast<const u8*>(bytes.data()), bytes.size()}; }

void expect_same(const Picture& got, const Picture& want, const std::string& what) {
  EXPECT_EQ(got.height, want.height) << what;
  EXPECT_EQ(got.width, want.width) << what;
  EXPECT_EQ(got.channels, want.channels) << what;
  EXPECT_EQ(got.pixels_HWC, want.pixels_HWC) << what;
}

TEST(Picture, IsReadAsPillowReadsIt) {
  for (const auto& [file, want] : std::vector<std::pair<std::string, std::string>>{{"rgb.png", "rgb-png.ppm"},
                                                                                   {"grey.png", "grey-png.pgm"},
                                                                                   {"palette.png", "palette-png.ppm"},
                                                                                   {"rgba.png", "rgba-png.ppm"},
                                                                                   {"rgb.jpg", "rgb-jpg.ppm"},
                                                                                   {"grey.jpg", "grey-jpg.pgm"},
                                                                                   {"progressive.jpg", "progressive-jpg.ppm"}}) {
    expect_same(read_picture(test::data("pictures") / file), netpbm(want), file);
    Picture header = netpbm(want);
    header.pixels_HWC.clear();
    expect_same(read_picture(test::data("pictures") / file, Part::header), header, file);
  }
}

TEST(Picture, IsFittedAsTorchvisionFitsPillowsImages) {
  const auto fitted = [](const std::string& file, const Shape& shape, const std::string& want_name) {
    std::vector<u8> pixels(static_cast<size_t>(shape.elems()));
    fit(read_picture(test::data("pictures") / file), shape, pixels);
    const Picture want = netpbm(want_name);
    ASSERT_EQ(std::ssize(want.pixels_HWC), shape.elems()) << want_name;
    const i64 C = shape[0], area = shape[1] * shape[2];
    for (i64 i = 0; i < area; ++i) {
      for (i64 c = 0; c < C; ++c)
        ASSERT_EQ(pixels[static_cast<size_t>(c * area + i)], want.pixels_HWC[static_cast<size_t>(i * C + c)])
            << want_name << " pixel " << i;
    }
  };
  fitted("wide.png", {3, 16, 16}, "fit-down.ppm");
  fitted("rgb.png", {3, 24, 24}, "fit-up.ppm");
  fitted("wide.png", {3, 30, 11}, "fit-tall.ppm");
  fitted("wide.png", {3, 23, 22}, "fit-odd.ppm");
  fitted("wide.png", {1, 16, 16}, "fit-luma.pgm");
  fitted("grey.png", {3, 7, 7}, "fit-repeated.ppm");
  fitted("rgb.png", {3, 9, 13}, "rgb-png.ppm");
}

TEST(Picture, WhatCannotBeReadIsRefusedByName) {
  const auto refused = [](const std::string& bytes) {
    return error_of(ErrorCode::data, [&] { decode_picture(span_of(bytes), "some/file"); });
  };
  EXPECT_EQ(refused(""), "[data] some/file: expected a PNG or JPEG image, got an empty file");
  EXPECT_EQ(refused("GIF89a"), "[data] some/file: expected a PNG or JPEG image, got a file whose first bytes are of neither format");
  EXPECT_NE(refused(picture_bytes("cmyk.jpg")).find("in grey or RGB, got CMYK"), std::string::npos);
  std::string huge = picture_bytes("rgb.png");  // a picture file that gets a huge width and the checksum that matches it
  huge.replace(16, 4, big_endian({20000}));
  huge.replace(29, 4, big_endian({static_cast<u32>(crc32(0, reinterpret_cast<const Bytef*>(&huge[12]), 17))}));
  EXPECT_NE(refused(huge).find("expected a picture of at most 16384 x 16384 and 67108864 pixels, got 9 x 20000"), std::string::npos);
  std::string jpeg = picture_bytes("rgb.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x3f\xff\x3f\xff");
  EXPECT_NE(refused(jpeg).find("got 16383 x 16383"), std::string::npos) << refused(jpeg);
}

TEST(Picture, BytesThatCamerasLeaveHarmNone) {
  std::string bytes = picture_bytes("rgb.jpg");
  bytes.insert(bytes.size() - 2, 5, 'x');
  EXPECT_EQ(decode_picture(span_of(bytes), "f").pixels_HWC, netpbm("rgb-jpg.ppm").pixels_HWC);
}

// A picture file that is cut at any byte is refused, unless only bytes behind the last pixel are missing. It then gives equal pixels.
TEST(Picture, CutShortIsRefused) {
  for (const char* name : {"rgb.png", "palette.png", "rgba.png", "rgb.jpg", "grey.jpg", "progressive.jpg"}) {
    const std::string whole = picture_bytes(name);
    const Picture want = decode_picture(span_of(whole), name);
    size_t refused = 0;
    for (size_t n = 0; n < whole.size(); ++n) {
      const std::string cut = whole.substr(0, n);
      try {
        EXPECT_EQ(decode_picture(span_of(cut), name).pixels_HWC, want.pixels_HWC) << name << " cut at " << n;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::data);
        ++refused;
      }
    }
    EXPECT_GE(refused + 16, whole.size()) << name;
  }
}

// Flips every bit of a picture file, one at a time: decoding gives a picture or Error(data).
TEST(Picture, DamagedIsReadOrRefused) {
  for (const char* name : {"rgb.png", "palette.png", "rgba.png", "rgb.jpg", "grey.jpg", "progressive.jpg", "cmyk.jpg"}) {
    const std::string whole = picture_bytes(name);
    size_t refused = 0;
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string bad = whole;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      try {
        const Picture got = decode_picture(span_of(bad), name);
        EXPECT_EQ(std::ssize(got.pixels_HWC), got.height * got.width * got.channels);
        std::vector<u8> pixels(3 * 8 * 8);
        fit(got, {3, 8, 8}, pixels);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::data);
        ++refused;
      }
    }
    EXPECT_GT(refused, whole.size()) << name;
  }
}

}  // namespace
}  // namespace spillway::data::picture_test

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/picture.h"

namespace spillway::data {
namespace {

// The weights for scaling a line of `from` pixels to `to` pixels. They cover the output pixels
// [first, first + count). For each output pixel there is the index of its first input pixel, and the
// weights of that pixel and of those after it. Weights are integers in units of 2^-22, as in Pillow.
struct LineWeights {
  LineWeights(i64 from, i64 to, i64 first, i64 count) {
    const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
    for (i64 x = first; x < first + count; ++x) {
      const double centre = (static_cast<double>(x) + 0.5) * scale;
      const i64 begin = std::max<i64>(0, static_cast<i64>(centre - reach + 0.5));
      const i64 end = std::min(from, static_cast<i64>(centre + reach + 0.5));
      std::vector<double> some;
      double sum = 0;
      for (i64 i = begin; i < end; ++i) {
        some.push_back(std::max(0.0, 1 - std::abs((static_cast<double>(i) - centre + 0.5) * (1 / reach))));
        sum += some.back();
      }
      begins.push_back(begin);
      std::vector<i32>& whole = weights.emplace_back();
      for (const double w : some) whole.push_back(static_cast<i32>(0.5 + w / sum * (1 << kBits)));
    }
  }
  static constexpr int kBits = 22;
  std::vector<i64> begins;
  std::vector<std::vector<i32>> weights;
};

// Scales one line of pixels. In both the input and the output, neighbouring pixels of the line are `step` bytes apart.
void scale_line(const LineWeights& line, const u8* from, u8* to, i64 step) {
  for (size_t x = 0; x < line.begins.size(); ++x, to += step) {
    i32 sum = 1 << (LineWeights::kBits - 1);
    const u8* at = from + line.begins[x] * step;
    for (const i32 weight : line.weights[x]) {
      sum += weight * *at;
      at += step;
    }
    *to = static_cast<u8>(std::clamp(sum >> LineWeights::kBits, 0, 255));
  }
}

Picture with_channels(const Picture& p, i64 channels) {
  Picture to{p.height, p.width, channels, std::vector<u8>(static_cast<size_t>(p.height * p.width * channels))};
  const u8* from = p.pixels_HWC.data();
  for (size_t i = 0; i < to.pixels_HWC.size(); ++i) {
    if (channels == 3) {
      to.pixels_HWC[i] = from[i / 3];
    } else {
      to.pixels_HWC[i] = static_cast<u8>((from[3 * i] * 19595 + from[3 * i + 1] * 38470 + from[3 * i + 2] * 7471 + 0x8000) >> 16);
    }
  }
  return to;
}

}  // namespace

void fit(const Picture& picture, const Shape& shape_CHW, std::span<u8> pixels_CHW) {
  const i64 C = shape_CHW[0], H = shape_CHW[1], W = shape_CHW[2];
  require((C == 1 || C == 3) && std::ssize(pixels_CHW) == shape_CHW.elems(),
          "[data] expected a grey or RGB image and as many pixels as its shape has");
  Picture p = picture.channels == C ? picture : with_channels(picture, C);
  const bool wider = p.width * H > p.height * W;
  const i64 height = wider ? H : W * p.height / p.width, width = wider ? H * p.width / p.height : W;
  const auto middle = [](i64 has, i64 wants) { return static_cast<i64>(std::nearbyint(static_cast<double>(has - wants) / 2)); };
  const LineWeights across(p.width, width, middle(width, W), W), down(p.height, height, middle(height, H), H);
  std::vector<u8> narrow(static_cast<size_t>(p.height * W * C)), all(static_cast<size_t>(H * W * C));
  for (i64 y = 0; y < p.height; ++y) {
    for (i64 c = 0; c < C; ++c)
      scale_line(across, &p.pixels_HWC[static_cast<size_t>(y * p.width * C + c)], &narrow[static_cast<size_t>(y * W * C + c)], C);
  }
  for (i64 x = 0; x < W * C; ++x) scale_line(down, &narrow[static_cast<size_t>(x)], &all[static_cast<size_t>(x)], W * C);
  for (i64 i = 0; i < H * W; ++i) {
    for (i64 c = 0; c < C; ++c) pixels_CHW[static_cast<size_t>(c * H * W + i)] = all[static_cast<size_t>(i * C + c)];
  }
}

}  // namespace spillway::data

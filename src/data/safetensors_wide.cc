#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "data/safetensors.h"
#include "data/safetensors_header.h"

namespace spillway::data {
namespace {

double widen(const std::byte* at, DType dtype) {
  const auto load = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return load(float{});
    case DType::f64:
      return load(double{});
    case DType::bf16:
      return std::bit_cast<float>(static_cast<u32>(load(u16{})) << 16);
    default:
      break;
  }
  const u16 half = load(u16{});
  const u64 sign = static_cast<u64>(half >> 15) << 63, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return std::bit_cast<double>(sign | u64{0x7ff} << 52 | mantissa << 42);
  if (exponent == 0) return std::bit_cast<double>(std::bit_cast<u64>(static_cast<double>(mantissa) * 0x1p-24) | sign);
  return std::bit_cast<double>(sign | (exponent + 1023 - 15) << 52 | mantissa << 42);
}

}  // namespace

void SafetensorsReader::read_wide(const TensorInfo& info, i64 begin, std::span<double> out) const {
  if (!is_floating(info.dtype)) {
    reject_safetensors(path(),
                       fmt::format("tensor {}: expected floating-point numbers, got {}", in_quotes(info.name), to_string(info.dtype)));
  }
  std::array<std::byte, 32768> raw;  // on the stack: a training run may read weights while its memory is all planned
  const i64 width = size_of(info.dtype), step = static_cast<i64>(raw.size()) / width, count = static_cast<i64>(out.size());
  for (i64 at = 0; at < count; at += step) {
    const auto n = static_cast<size_t>(std::min(step, count - at) * width);
    read(info, (begin + at) * width, std::span(raw).first(n));
    for (i64 i = 0; i < std::min(step, count - at); ++i) out[static_cast<size_t>(at + i)] = widen(raw.data() + i * width, info.dtype);
  }
}

}  // namespace spillway::data

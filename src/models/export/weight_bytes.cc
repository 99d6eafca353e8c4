#include "models/export/weight_bytes.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/error.h"

namespace spillway::models {
namespace {

constexpr i64 kPiece = 4096;  // elements held at once

template <class T, class Convert>
void convert(std::span<const double> from, std::byte* to, Convert&& one) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T value = one(from[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void convert(std::span<const double> from, DType dtype, std::byte* to) {
  if (dtype == DType::bf16) return convert<BFloat16>(from, to, [](double x) { return narrow<BFloat16>(static_cast<float>(x)); });
  if (dtype == DType::f16) return convert<Float16>(from, to, [](double x) { return narrow<Float16>(static_cast<float>(x)); });
  if (dtype == DType::f64) return convert<double>(from, to, [](double x) { return x; });
  convert<float>(from, to, [](double x) { return static_cast<float>(x); });
}

}  // namespace

DType exported_dtype(const std::string& name) {
  if (name == "fp32" || name == "f32") return DType::f32;
  if (name == "fp64" || name == "f64") return DType::f64;
  if (name == "bf16") return DType::bf16;
  if (name == "fp16") return DType::f16;
  throw Error(ErrorCode::usage, fmt::format("[export] expected --dtype fp32, fp64, bf16 or fp16, got `{}`", name));
}

void write_bytes(const WeightSource& source, const nn::Parameter& parameter, DType dtype,
                 const std::function<void(i64 offset, std::span<const std::byte> bytes)>& write) {
  std::array<double, kPiece> wide;
  std::array<std::byte, kPiece * 8> bytes;
  for (i64 at = 0; at < parameter.elems(); at += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, parameter.elems() - at));
    const std::span piece(wide.data(), count);
    source.read(parameter, at, piece);
    convert(piece, dtype, bytes.data());
    write(at * size_of(dtype), std::span<const std::byte>(bytes).first(count * static_cast<size_t>(size_of(dtype))));
  }
}

}  // namespace spillway::models

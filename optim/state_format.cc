#include "optim/state_format.h"

#include <string>

#include "base/error.h"

namespace spillway::optim {
namespace {

constexpr i64 kAlignBytes = 4096;

/// Returns the bytes that one array of the rule takes in a tile.
i64 moment_bytes(const StateFormat& format) {
  switch (format.moments) {
    case Moments::bf16:
      return kTileElems * 2;
    case Moments::int8:
      return kTileElems;
    default:
      return kTileElems * (format.weight == DType::f64 ? 8 : 4);
  }
}

}  // namespace

void StateFormat::check() const {
  const auto expect = [](bool holds, const std::string& what) {
    if (!holds) throw Error(ErrorCode::usage, "[optimizer state] expected " + what);
  };
  expect(is_floating(weight), "f32, f64, bf16 or f16 weights, got " + std::string(to_string(weight)));
  expect(weight != DType::f16 || master == Master::fp32,
         "--master-weights fp32 with f16 weights: split master weights exist only for bf16 weights");
  expect(weight == DType::bf16 || master == Master::fp32,
         "bf16 weights with --master-weights split: only bf16 weights can have split master weights");
  expect(weight != DType::f64 || moments == Moments::fp32,
         "--moments fp32 with f64 weights: rounded moments would lose the precision of f64");
  expect(moments != Moments::int8 || rule == Rule::adamw,
         std::string("adamw with 8-bit moments, got ") + to_string(rule) + ": only AdamW supports --moments 8bit");
  expect(moments == Moments::fp32 || !is_of_parameters(rule),
         "--moments fp32 with adafactor, whose state is small already: leave out --moments");
  expect(weight == DType::f64 ? gradient == DType::f64 : gradient == DType::f32 || gradient == DType::bf16,
         "f32 or bf16 gradients (f64 gradients with f64 weights), got " + std::string(to_string(gradient)));
}

i64 StateFormat::average_begin_bytes() const { return is_half(weight) ? kTileElems * (master == Master::split ? 2 : 4) : 0; }

i64 StateFormat::array_begin_bytes(int k) const {
  const i64 average_bytes = average ? kTileElems * (weight == DType::f64 ? 8 : 4) : 0;
  return average_begin_bytes() + average_bytes + k * moment_bytes(*this);
}

i64 StateFormat::scales_begin_bytes() const { return array_begin_bytes(state_arrays(rule)); }

i64 StateFormat::state_tile_bytes() const {
  const i64 scales_bytes = moments == Moments::int8 ? 2 * kScalesBytes : 0;
  return round_up(scales_begin_bytes() + scales_bytes + factors * (weight == DType::f64 ? 8 : 4), kAlignBytes);
}

StateFormat StateFormat::factored(i64 least) const {
  StateFormat format = *this;
  format.rule = Rule::adafactor_factored;
  format.factors = round_up(least, kAlignBytes / (weight == DType::f64 ? 8 : 4));
  return format;
}

StateFormat StateFormat::without_arrays() const {
  StateFormat plain = *this;
  plain.rule = Rule::sgd;
  plain.moments = Moments::fp32;
  plain.average = false;
  return plain;
}

StateFormat StateFormat::beside_matrices() const {
  StateFormat beside = *this;
  if (is_of_matrices(rule)) beside.rule = Rule::adamw;
  return beside;
}

StateFormat plain_format(DType weight) { return {.weight = weight, .gradient = weight == DType::f64 ? DType::f64 : DType::f32}; }

}  // namespace spillway::optim

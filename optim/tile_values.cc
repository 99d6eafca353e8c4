#include "optim/tile_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "optim/element.h"
#include "optim/moments8.h"

namespace spillway::optim {
namespace {

constexpr u16 kToNearest = 0x8000;  // with this noise, stochastic rounding becomes rounding to nearest

/// Sets out[k] = value(begin + k).
template <class T, class Value>
void fill(std::span<T> out, i64 begin, const Value& value) {
  for (T& x : out) x = static_cast<T>(value(begin++));
}

template <class T>
void read_master(const StateFormat& f, const std::byte* weight, const std::byte* state, i64 begin, std::span<T> out) {
  if (f.weight == DType::f32) return fill(out, begin, [&](i64 i) { return load_element<float>(weight, i); });
  if (f.master == Master::fp32) return fill(out, begin, [&](i64 i) { return load_element<float>(state, i); });
  fill(out, begin, [&](i64 i) { return join_master(load_element<u16>(weight, i), load_element<u16>(state, i)); });
}

template <class T>
void read_moment(const StateFormat& f, int array, const std::byte* state, i64 begin, std::span<T> out) {
  const std::byte* column = state + f.array_begin_bytes(array);
  const bool is_m = array == 0;  // 8-bit codes exist for AdamW's m (array 0) and v (array 1) only
  const std::byte* scales = state + f.scales_begin_bytes() + (is_m ? 0 : kScalesBytes);
  switch (f.moments) {
    case Moments::fp32:
      return fill(out, begin, [&](i64 i) { return load_element<float>(column, i); });
    case Moments::bf16:
      return fill(out, begin, [&](i64 i) { return widen_bf16(load_element<u16>(column, i)); });
    case Moments::int8:
      return fill(out, begin, [&](i64 i) {
        const auto code = load_element<u8>(column, i);
        const auto scale = load_element<float>(scales, i / kMomentBlockElems);
        return is_m ? decode_m(code, scale) : decode_v(code, scale);
      });
  }
}

template <class T>
void write_master(const StateFormat& f, std::span<const T> values, std::byte* weight, std::byte* state) {
  for (i64 i = 0; i < kTileElems; ++i) {
    const auto x = static_cast<float>(values[static_cast<size_t>(i)]);
    if (f.weight == DType::f32) {
      store_element(weight, i, x);
      continue;
    }
    const float master = canonical(x);
    store_element(weight, i, f.weight == DType::f16 ? round_f16(master) : weight_of_master(master));
    if (f.master == Master::fp32)
      store_element(state, i, master);
    else
      store_element(state, i, remainder_of_master(master));
  }
}

void write_codes(bool is_m, std::span<const float> values, std::byte* column, std::byte* scales) {
  for (i64 b = 0; b < kMomentBlocks; ++b) {
    const auto block = values.subspan(static_cast<size_t>(b * kMomentBlockElems), static_cast<size_t>(kMomentBlockElems));
    const float scale = block_scale(block);
    store_element(scales, b, scale);
    for (i64 i = 0; i < kMomentBlockElems; ++i) {
      const float x = block[static_cast<size_t>(i)];
      store_element(column, b * kMomentBlockElems + i, is_m ? encode_m(x, scale, kToNearest) : encode_v(x, scale, kToNearest));
    }
  }
}

/// Writes one array of the state. The state tile must be all zeros before.
template <class T>
void write_moment(const StateFormat& f, int array, std::span<const T> given, std::byte* state) {
  if (given.empty()) return;
  std::byte* column = state + f.array_begin_bytes(array);
  const bool is_m = array == 0;
  const std::vector<float> values(given.begin(), given.end());
  if (f.moments == Moments::int8) return write_codes(is_m, values, column, state + f.scales_begin_bytes() + (is_m ? 0 : kScalesBytes));
  for (i64 i = 0; i < kTileElems; ++i) {
    const float x = values[static_cast<size_t>(i)];
    if (f.moments == Moments::bf16)
      store_element(column, i, round_moment_bf16(x, kToNearest));
    else
      store_element(column, i, x);
  }
}

/// Writes the average of the weights. The state tile must be all zeros before.
template <class T>
void write_average(const StateFormat& f, std::span<const T> values, std::byte* state) {
  std::byte* column = state + f.average_begin_bytes();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<i64>(i);
    f.weight == DType::f64 ? store_element(column, at, static_cast<double>(values[i]))
                           : store_element(column, at, static_cast<float>(values[i]));
  }
}

// Writes one array of a format with f64 weights, in which all arrays are doubles.
template <class T>
void write_f64(std::span<const T> values, std::byte* column) {
  for (size_t i = 0; i < values.size(); ++i) store_element(column, static_cast<i64>(i), static_cast<double>(values[i]));
}

template <class T>
void require_wide_enough(const StateFormat& f) {
  f.check();
  require(f.weight != DType::f64 || sizeof(T) == 8, "[tile values] expected values of type double for f64 weights");
}

}  // namespace

template <class T>
void read_part(const StateFormat& format, StatePart part, const std::byte* weight, const std::byte* state, i64 begin, std::span<T> out) {
  require_wide_enough<T>(format);
  require(begin >= 0 && begin + static_cast<i64>(out.size()) <= kTileElems, "[tile values] expected a range of elements inside one tile");
  const bool average = part == StatePart::average;
  const int array = static_cast<int>(part) - 1;
  require(average ? format.average : array < state_arrays(format.rule), "[tile values] expected a part that exists in the state format");
  if (average && format.weight != DType::f64)
    return fill(out, begin, [&](i64 i) { return load_element<float>(state + format.average_begin_bytes(), i); });
  if (format.weight == DType::f64) {
    const i64 at = average ? format.average_begin_bytes() : format.array_begin_bytes(array);
    const std::byte* column = part == StatePart::master ? weight : state + at;
    return fill(out, begin, [&](i64 i) { return load_element<double>(column, i); });
  }
  if (part == StatePart::master) return read_master(format, weight, state, begin, out);
  read_moment(format, array, state, begin, out);
}

template <class T>
void write_tile(const StateFormat& format, const TileValues<T>& values, std::byte* weight, std::byte* state) {
  require_wide_enough<T>(format);
  const auto is_tile = [](std::span<const T> part) { return static_cast<i64>(part.size()) == kTileElems; };
  const std::span<const T> arrays[kMaxStateArrays] = {values.first, values.second, values.third};
  const auto none_or_tile = [&](std::span<const T> part) { return part.empty() || is_tile(part); };
  require(is_tile(values.master) && none_or_tile(values.average) && std::ranges::all_of(arrays, none_or_tile),
          "[tile values] expected one number for each element of the tile");
  if (format.state_tile_bytes() > 0) std::memset(state, 0, static_cast<size_t>(format.state_tile_bytes()));
  const bool f64 = format.weight == DType::f64;
  f64 ? write_f64(values.master, weight) : write_master(format, values.master, weight, state);
  if (format.average) write_average(format, values.average, state);
  for (int k = 0; k < state_arrays(format.rule); ++k)
    f64 ? write_f64(arrays[k], state + format.array_begin_bytes(k)) : write_moment(format, k, arrays[k], state);
}

template void read_part(const StateFormat&, StatePart, const std::byte*, const std::byte*, i64, std::span<float>);
template void read_part(const StateFormat&, StatePart, const std::byte*, const std::byte*, i64, std::span<double>);
template void write_tile(const StateFormat&, const TileValues<float>&, std::byte*, std::byte*);
template void write_tile(const StateFormat&, const TileValues<double>&, std::byte*, std::byte*);

void read_factors(const StateFormat& format, const std::byte* state, i64 begin, std::span<double> out) {
  require(begin >= 0 && begin + static_cast<i64>(out.size()) <= format.factors,
          "[tile values] expected a range of factors inside one tile");
  const std::byte* column = state + format.factors_begin_bytes();
  const bool f64 = format.weight == DType::f64;
  fill(out, begin, [&](i64 i) { return f64 ? load_element<double>(column, i) : static_cast<double>(load_element<float>(column, i)); });
}

void write_factors(const StateFormat& format, std::span<const double> values, std::byte* state) {
  require(static_cast<i64>(values.size()) == format.factors, "[tile values] expected as many values as the tile has factors");
  std::byte* column = state + format.factors_begin_bytes();
  for (i64 i = 0; i < format.factors; ++i) {
    const double x = values[static_cast<size_t>(i)];
    format.weight == DType::f64 ? store_element(column, i, x) : store_element(column, i, static_cast<float>(x));
  }
}

void weights_of_master(const StateFormat& format, const std::byte* state, std::byte* weight) {
  require(!format.update_reads_weight(), "[optimizer state] expected a format with fp32 master weights in the state");
  for (i64 i = 0; i < kTileElems; ++i) {
    const float master = load_element<float>(state, i);
    store_element(weight, i, format.weight == DType::f16 ? round_f16(master) : weight_of_master(master));
  }
}

}  // namespace spillway::optim

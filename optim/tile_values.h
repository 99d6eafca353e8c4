// The numbers inside a tile's bytes, for initial weights and checkpoints: whatever the format, they go in and out as plain float or double.
// What is read and written again gives back the same bytes in every format, 8-bit codes and scales too; into another format values are
// rounded to nearest. NaN has one form in a master of bf16 weights and in bf16 moments. Pure functions, thread-safe.
#pragma once
#include <span>

#include "optim/state_format.h"

namespace spillway::optim {

/// The master, the arrays of the format's rule (AdamW's first is m, its second v), and the average of the weights.
/// The last two are no parts of single elements: Adafactor's factors (rules/adafactor.h).
enum class StatePart { master, first, second, third, average, rows, columns };
constexpr int kStateParts = 5;  // of elements
constexpr StatePart array_part(int k) { return static_cast<StatePart>(1 + k); }

/// Elements [begin, begin + out.size()) of a tile. T = float or double; f64 weights need double, and the format must have the part, else
/// Error(bug).
template <class T>
void read_part(const StateFormat& format, StatePart part, const std::byte* weight, const std::byte* state, i64 begin, std::span<T> out);

/// Factors [begin, begin + out.size()) of those that a tile holds, and all of them.
void read_factors(const StateFormat& format, const std::byte* state, i64 begin, std::span<double> out);
void write_factors(const StateFormat& format, std::span<const double> values, std::byte* state);

/// The weight tile that a whole fp32 master stands for (formats whose update does not read the weight).
void weights_of_master(const StateFormat& format, const std::byte* state, std::byte* weight);

/// A whole tile's numbers, gaps zero; an array that is empty: zeros. Those that the format has not are not written.
template <class T>
struct TileValues {
  std::span<const T> master, first, second, third = {}, average = {};
};

/// Writes the weight tile and the state tile, all bytes of both. Whole tiles, because 8-bit moments share a scale across neighbours.
template <class T>
void write_tile(const StateFormat& format, const TileValues<T>& values, std::byte* weight, std::byte* state);

}  // namespace spillway::optim

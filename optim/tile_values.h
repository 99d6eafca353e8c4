// Converts the bytes of a tile (16,384 elements) to plain float or double numbers and back, whatever the format,
// for initial weights and checkpoints. Reading numbers and writing them again gives back the tile's bytes in
// every format, including 8-bit codes and scales; when written in another format, values are rounded to nearest.
// NaN has one bit pattern in the master of bf16 weights and in bf16 moments. Pure functions, thread-safe.
#pragma once
#include <span>

#include "optim/state_format.h"

namespace spillway::optim {

/// The parts of a tile: the master, the arrays of the format's rule (AdamW's first is m, its second v), and the average of
/// the weights. `rows` and `columns` are Adafactor's factors (rules/adafactor.h), which do not have one value per element.
enum class StatePart { master, first, second, third, average, rows, columns };
constexpr int kStateParts = 5;  // the number of parts of the state that have a value per element
constexpr StatePart array_part(int k) { return static_cast<StatePart>(1 + k); }

/// Reads elements [begin, begin + out.size()) of a tile. T is float or double; f64
/// weights need double. Throws Error(bug) if the format does not have the part.
template <class T>
void read_part(const StateFormat& format, StatePart part, const std::byte* weight, const std::byte* state, i64 begin, std::span<T> out);

/// read_factors() reads the factors [begin, begin + out.size()) of a tile; write_factors() writes all factors of a tile.
void read_factors(const StateFormat& format, const std::byte* state, i64 begin, std::span<double> out);
void write_factors(const StateFormat& format, std::span<const double> values, std::byte* state);

/// Computes the weight tile from the fp32 master in the state. The format's
/// update must not read the weight (update_reads_weight() is false).
void weights_of_master(const StateFormat& format, const std::byte* state, std::byte* weight);

/// The numbers of a whole tile, one array for each part of the state. Elements that belong to no parameter are 0. An empty array stands for
/// zeros. An array that the state format does not have is ignored when the tile is written.
template <class T>
struct TileValues {
  std::span<const T> master, first, second, third = {}, average = {};
};

/// Writes all bytes of the weight tile and the state tile. The function
/// takes whole tiles, because neighbours share a scale in 8-bit moments.
template <class T>
void write_tile(const StateFormat& format, const TileValues<T>& values, std::byte* weight, std::byte* state);

}  // namespace spillway::optim

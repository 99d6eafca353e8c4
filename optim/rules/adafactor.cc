#include "optim/rules/adafactor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/stream.h"
#include "optim/bf16.h"
#include "optim/element.h"
#include "optim/tile_values.h"

namespace spillway::optim {
namespace {

constexpr i64 kPartAlignBytes = 64;
constexpr i64 kGrainElems = 16384;    // the least number of elements that a task of a thread has
constexpr i64 kColumnsTogether = 64;  // the number of columns that are summed together: their sums stay in registers and the L1 cache
constexpr size_t kSums = 8;

i64 tiles_of(i64 elems) { return ceil_div(elems, kTileElems); }
i64 grain(i64 elems_each) { return std::max<i64>(1, kGrainElems / std::max<i64>(1, elems_each)); }

// The arrays of a step of Adafactor, and their places in the working memory.
template <class T>
struct UnderWay {
  explicit UnderWay(const AdafactorStep& step) : UnderWay(step.matrices, step.elems, step.memory) {}
  UnderWay(const Matrices& m, i64 elems, std::byte* memory) {
    i64 used = 0;
    const auto take = [&](i64 wanted) { return memory + std::exchange(used, used + round_up(wanted, kPartAlignBytes)); };
    direction = reinterpret_cast<T*>(take(tiles_of(elems) * kTileElems * static_cast<i64>(sizeof(T))));
    rows = reinterpret_cast<T*>(take(m.factors() * static_cast<i64>(sizeof(T))));
    columns = rows + m.row_factors();
    means = reinterpret_cast<double*>(take(m.count * 8));
    squares = reinterpret_cast<double*>(take(tiles_of(elems) * 8));
    bytes = used;
  }
  T *direction, *rows, *columns;
  double *means, *squares;  // means: the mean of R for each matrix; squares: the sum of squared weights of each tile
  i64 bytes;
};

template <class T>
T eps1_of(const AdafactorSettings& settings) {
  return static_cast<T>(settings.eps1.value_or(std::numeric_limits<T>::epsilon()));
}

// Returns the sum of squares of x: first kSums separate sums, which are then added in order.
template <class T>
double square_sum(std::span<const T> x) {
  double sums[kSums] = {}, sum = 0;
  const size_t whole = x.size() / kSums * kSums;
  for (size_t i = 0; i < whole; i += kSums) {
    for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  }
  for (const double one : sums) sum += one;
  for (const T one : x.subspan(whole)) sum += static_cast<double>(one) * static_cast<double>(one);
  return sum;
}
template <class T>
double square_sum(const T* x, i64 n) {
  return square_sum(std::span(x, static_cast<size_t>(n)));
}

template <class T>
T blend(T old, double mean, T fresh) {
  return old + (static_cast<T>(mean) - old) * fresh;
}

template <class T>
void take_factors(const AdafactorStep& step, i64 k, const std::byte* state) {
  const i64 each = step.format.factors, begin = std::min(step.matrices.factors(), k * each);
  const i64 n = std::min(step.matrices.factors(), begin + each) - begin;
  if (n > 0) std::memcpy(UnderWay<T>(step).rows + begin, state + step.format.factors_begin_bytes(), static_cast<size_t>(n) * sizeof(T));
}

// For a parameter of two or more dimensions, stores the gradient of tile k. For any other parameter, whose state is v, stores the direction
// u. Also sums the squares of the tile's weights.
template <class T>
void gather(const AdafactorStep& step, i64 k, const std::byte* gradient, const std::byte* weight, const std::byte* state,
            const Scalars<double>& scalars, const AdafactorSettings& settings) {
  const StateFormat& format = step.format;
  const UnderWay<T> parts(step);
  const auto s = rounded<T>(scalars);
  const T eps = eps1_of<T>(settings);
  const i64 elems = std::min(kTileElems, step.elems - k * kTileElems);
  const bool bf16 = format.gradient == DType::bf16, factored = format.factors > 0;
  const auto* variance = state ? reinterpret_cast<const T*>(state + format.array_begin_bytes(0)) : nullptr;
  T* const out = parts.direction + k * kTileElems;
  for (i64 i = 0; i < elems; ++i) {
    const T g = (bf16 ? static_cast<T>(widen_bf16(load_element<u16>(gradient, i))) : load_element<T>(gradient, i)) * s.gradient_scale;
    out[i] = factored ? g : T(1) / std::sqrt(std::max(blend<T>(variance[i], static_cast<double>(g * g), s.one_minus_beta2), eps * eps)) * g;
  }
  std::fill(out + elems, out + kTileElems, T(0));
  std::vector<T> master(static_cast<size_t>(elems));
  read_part<T>(format, StatePart::master, weight, state, 0, master);
  parts.squares[k] = square_sum(master.data(), elems);
  if (factored) take_factors<T>(step, k, state);
}

template <class T>
void make_factors(const AdafactorStep& step, const UnderWay<T>& parts, T fresh) {
  const Matrices& m = step.matrices;
  const Stream& threads = Stream::current();
  threads.for_ranges(m.row_factors(), grain(m.columns), [=](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const double mean = square_sum(parts.direction + r * m.columns, m.columns) / static_cast<double>(m.columns);
      parts.rows[r] = blend(parts.rows[r], mean, fresh);
    }
  });
  const i64 blocks = ceil_div(m.columns, kColumnsTogether);
  threads.for_ranges(m.count * blocks, grain(m.rows * kColumnsTogether), [=](i64 begin, i64 end) {
    for (i64 item = begin; item < end; ++item) {
      const i64 matrix = item / blocks, column = item % blocks * kColumnsTogether, n = std::min(kColumnsTogether, m.columns - column);
      const T* x = parts.direction + matrix * m.rows * m.columns + column;
      double sums[kColumnsTogether] = {};
      for (i64 r = 0; r < m.rows; ++r) {
        for (i64 c = 0; c < n; ++c) sums[c] += static_cast<double>(x[r * m.columns + c]) * static_cast<double>(x[r * m.columns + c]);
      }
      T* const to = parts.columns + matrix * m.columns + column;
      for (i64 c = 0; c < n; ++c) to[c] = blend(to[c], sums[c] / static_cast<double>(m.rows), fresh);
    }
  });
  threads.for_ranges(m.count, grain(m.rows), [=](i64 begin, i64 end) {
    for (i64 matrix = begin; matrix < end; ++matrix) {
      double sum = 0;
      for (i64 r = 0; r < m.rows; ++r) sum += static_cast<double>(parts.rows[matrix * m.rows + r]);
      parts.means[matrix] = sum / static_cast<double>(m.rows);
    }
  });
}

template <class T>
double direction(const AdafactorStep& step, const Scalars<double>& scalars, const AdafactorSettings& settings) {
  const Matrices& m = step.matrices;
  const UnderWay<T> parts(step);
  const T eps = eps1_of<T>(settings);
  if (m.count > 0) {
    make_factors(step, parts, static_cast<T>(scalars.one_minus_beta2));
    Stream::current().for_ranges(m.row_factors(), grain(m.columns), [=](i64 begin, i64 end) {
      for (i64 r = begin; r < end; ++r) {
        const i64 matrix = r / m.rows;
        const T mean = std::max(static_cast<T>(parts.means[matrix]), eps), *c = parts.columns + matrix * m.columns;
        T* const x = parts.direction + r * m.columns;
        for (i64 i = 0; i < m.columns; ++i) x[i] *= T(1) / std::sqrt(std::max(parts.rows[r] * c[i] / mean, eps * eps));
      }
    });
  }
  const i64 tiles = tiles_of(step.elems);
  std::vector<double> moved(static_cast<size_t>(tiles));
  Stream::current().run(tiles,
                        [&](i64 t, int) { moved[static_cast<size_t>(t)] = square_sum(parts.direction + t * kTileElems, kTileElems); });
  double of_weights = 0, of_direction = 0;
  for (i64 t = 0; t < tiles; ++t) of_weights += parts.squares[t], of_direction += moved[static_cast<size_t>(t)];
  const auto n = static_cast<double>(step.elems);
  return std::max(settings.eps2, std::sqrt(of_weights / n)) / std::max(1.0, std::sqrt(of_direction / n) / settings.d);
}

template <class T>
void put(const AdafactorStep& step, i64 k, std::byte* state) {
  const i64 each = step.format.factors, begin = std::min(step.matrices.factors(), k * each);
  const auto bytes = static_cast<size_t>(std::min(step.matrices.factors(), begin + each) - begin) * sizeof(T);
  std::byte* const to = state + step.format.factors_begin_bytes();
  std::memcpy(to, UnderWay<T>(step).rows + begin, bytes);
  std::memset(to + bytes, 0, static_cast<size_t>(each) * sizeof(T) - bytes);
}

bool is_f64(const AdafactorStep& step) { return step.format.weight == DType::f64; }

}  // namespace

i64 adafactor_bytes(const Matrices& m, i64 elems, DType dtype) {
  return dtype == DType::f64 ? UnderWay<double>(m, elems, nullptr).bytes : UnderWay<float>(m, elems, nullptr).bytes;
}

void adafactor_gather(const AdafactorStep& step, i64 k, const std::byte* gradient, const std::byte* weight, const std::byte* state,
                      const Scalars<double>& scalars, const AdafactorSettings& settings) {
  require(is_of_parameters(step.format.rule) && (step.format.factors > 0) == (step.matrices.count > 0),
          "[adafactor] expected a state format with factors if the parameter has two or more dimensions, else one without");
  is_f64(step) ? gather<double>(step, k, gradient, weight, state, scalars, settings)
               : gather<float>(step, k, gradient, weight, state, scalars, settings);
}

double adafactor_direction(const AdafactorStep& step, const Scalars<double>& scalars, const AdafactorSettings& settings) {
  return is_f64(step) ? direction<double>(step, scalars, settings) : direction<float>(step, scalars, settings);
}

void put_factors(const AdafactorStep& step, i64 k, std::byte* state) {
  is_f64(step) ? put<double>(step, k, state) : put<float>(step, k, state);
}

template <class T>
void adafactor_update(const Arrays<T>& arrays, const T* direction, i64 elems, const Scalars<double>& scalars) {
  const auto s = rounded<T>(scalars);
  for (i64 i = 0; i < elems; ++i) {
    arrays.next[0][i] = arrays.old[0][i] * s.decay - s.step_size * direction[i];
    if (!arrays.next[1]) continue;
    const T g = arrays.gradient[i] * s.gradient_scale;
    arrays.next[1][i] = blend<T>(arrays.old[1][i], static_cast<double>(g * g), s.one_minus_beta2);
  }
}

template void adafactor_update(const Arrays<float>&, const float*, i64, const Scalars<double>&);
template void adafactor_update(const Arrays<double>&, const double*, i64, const Scalars<double>&);

}  // namespace spillway::optim

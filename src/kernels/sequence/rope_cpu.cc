#include "kernels/sequence/rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

template <class T>
struct Turn {
  T cosine[kMaxRopePairs], sine[kMaxRopePairs];
};

template <class T>
void turn_of(i32 position, std::span<const double> frequencies, T scaling, bool back, Turn<T>& turn) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const T angle = static_cast<T>(position) * static_cast<T>(frequencies[i]);
    turn.cosine[i] = std::cos(angle) * scaling;
    turn.sine[i] = (back ? -std::sin(angle) : std::sin(angle)) * scaling;
  }
}

template <class T>
void turn_head(const Turn<Wide<T>>& turn, i64 pairs, i64 width, const T* x, T* y) {
  for (i64 i = 0; i < pairs; ++i) {
    const Wide<T> first = widen(x[i]), second = widen(x[i + pairs]);
    y[i] = narrow<T>(first * turn.cosine[i] - second * turn.sine[i]);
    y[i + pairs] = narrow<T>(second * turn.cosine[i] + first * turn.sine[i]);
  }
  if (y != x) std::copy(x + 2 * pairs, x + width, y + 2 * pairs);
}

}  // namespace

void rope(const Tensor& x, const Tensor& positions, std::span<const double> frequencies, double scaling, bool back, const Tensor& y) {
  require(x.rank() == 4 && x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape(),
          "[rope] expected contiguous x and y [B, T, H, D]");
  const i64 pairs = static_cast<i64>(frequencies.size()), heads = x.size(2), width = x.size(3);
  require(pairs <= kMaxRopePairs && width >= 2 * pairs, "[rope] expected at most D/2 and at most 512 inverse frequencies");
  require(positions.dtype() == DType::int32 && positions.is_contiguous() && positions.elems() == x.size(0) * x.size(1),
          "[rope] expected contiguous int32 positions [B, T]");
  if (y.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(y, rope(x, positions, frequencies, scaling, back, y));
  for_dtype("rope", x.dtype(), [&]<class T>(T) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const i32* position = positions.data<i32>();
    Stream::current().for_ranges(positions.elems(), std::max<i64>(1, 2 * (1 << 13) / (heads * width)), [=](i64 begin, i64 end) {
      Turn<Wide<T>> turn;
      for (i64 row = begin; row < end; ++row) {
        if (row == begin || position[row] != position[row - 1]) {
          turn_of(position[row], frequencies, static_cast<Wide<T>>(scaling), back, turn);
        }
        for (i64 h = 0; h < heads; ++h) {
          const i64 at = (row * heads + h) * width;
          turn_head(turn, pairs, width, from + at, to + at);
        }
      }
    });
  });
}

}  // namespace spillway::kernels

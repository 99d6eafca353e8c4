#include "optim/norm.h"

#include "base/error.h"
#include "optim/bf16.h"
#include "optim/norm_paths.h"

namespace spillway::optim {
namespace {

double widened(float x) { return x; }
double widened(double x) { return x; }
double widened(BFloat16 x) { return widen_bf16(x.bits); }

}  // namespace

template <class T>
void add_square_rows_scalar(const T* tile, i64 rows, double* lanes) {
  for (i64 row = 0; row < rows; ++row) {
    for (i64 lane = 0; lane < kNormLanes; ++lane) {
      const double x = widened(tile[row * kNormLanes + lane]);
      lanes[lane] += x * x;
    }
  }
}

namespace {

template <class T>
double square_sum(std::span<const T> tile, Isa isa) {
  const auto n = static_cast<i64>(tile.size());
  require(n <= kTileElems, "[norm] expected at most one tile of 16384 elements");
  const i64 rows = n / kNormLanes;
  double lanes[kNormLanes] = {};
  switch (resolve(isa)) {
#if defined(__x86_64__)
    case Isa::avx512:
      add_square_rows_avx512(tile.data(), rows, lanes);
      break;
    case Isa::avx2:
      add_square_rows_avx2(tile.data(), rows, lanes);
      break;
#endif
    default:
      add_square_rows_scalar(tile.data(), rows, lanes);
      break;
  }
  for (i64 i = rows * kNormLanes; i < n; ++i) {
    const double x = widened(tile[static_cast<size_t>(i)]);
    lanes[i % kNormLanes] += x * x;
  }
  for (i64 width = kNormLanes / 2; width > 0; width /= 2) {
    for (i64 lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace

double tile_square_sum(std::span<const float> tile, Isa isa) { return square_sum(tile, isa); }
double tile_square_sum(std::span<const double> tile, Isa isa) { return square_sum(tile, isa); }
double tile_square_sum(std::span<const BFloat16> tile, Isa isa) { return square_sum(tile, isa); }

double clip_factor(double norm, double clip) {
  if (clip == 0) return 1;
  const double factor = clip / (norm + 1e-6);
  return factor > 1 ? 1 : factor;  // for NaN the comparison is false, so a NaN factor stays NaN
}

}  // namespace spillway::optim

#include "eager/square_sum.h"

#include <algorithm>
#include <numeric>

#include "device/transfer.h"
#include "optim/adamw_gpu.h"
#include "optim/norm.h"

namespace spillway::eager {
namespace {

using optim::kTileElems;

i64 tiles_of(const Tensor& gradient) { return ceil_div(gradient.elems(), kTileElems); }

// Puts the sum of each tile into `sums`, in GPU memory. The part of a tile at the end is copied to a whole one, filled up with zeros.
void put_sums_on_gpu(const Tensor& gradient, double* sums) {
  const i64 whole = gradient.elems() / kTileElems, rest = gradient.elems() % kTileElems, width = size_of(gradient.dtype());
  optim::tile_square_sums_on_gpu(gradient.raw(), gradient.dtype(), whole, sums);
  if (rest == 0) return;
  const Tensor last = zeros({kTileElems}, gradient.dtype(), "norm");
  put_transfer(last.raw(), gradient.raw() + whole * kTileElems * width, rest * width);
  optim::tile_square_sums_on_gpu(last.raw(), gradient.dtype(), 1, sums + whole);
}

template <class T>
void put_sums(std::span<const T> numbers, double* sums) {
  Stream::current().run(ceil_div(std::ssize(numbers), kTileElems), [&](i64 tile, int) {
    const auto begin = static_cast<size_t>(tile * kTileElems);
    sums[tile] = optim::tile_square_sum(numbers.subspan(begin, std::min<size_t>(kTileElems, numbers.size() - begin)));
  });
}

void put_sums_on_cpu(const Tensor& gradient, double* sums) {
  switch (gradient.dtype()) {
    case DType::f64:
      return put_sums<double>(gradient.span<double>(), sums);
    case DType::bf16:
      return put_sums<BFloat16>(gradient.span<BFloat16>(), sums);
    default:
      return put_sums<float>(gradient.span<float>(), sums);
  }
}

}  // namespace

double square_sum(std::span<const Tensor> gradients) {
  const i64 tiles = std::accumulate(gradients.begin(), gradients.end(), i64{0}, [](i64 sum, const Tensor& g) { return sum + tiles_of(g); });
  const Tensor sums = empty({tiles}, DType::f64, "norm");
  double* at = sums.data<double>();
  for (const Tensor& gradient : gradients) {
    sums.device().is_cuda() ? put_sums_on_gpu(gradient, at) : put_sums_on_cpu(gradient, at);
    at += tiles_of(gradient);
  }
  const Tensor here = sums.device().is_cuda() ? to_host(sums) : sums;
  const auto all = here.span<double>();
  return std::accumulate(all.begin(), all.end(), 0.0);
}

}  // namespace spillway::eager

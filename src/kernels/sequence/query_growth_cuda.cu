#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"
#include "kernels/sequence/query_growth.h"

namespace spillway::kernels::cuda {
namespace {

// A thread block multiplies all heads of one position at a time.
template <class T>
__global__ void grow(i64 rows, i64 row_elems, const i32* position, Wide<T> growth, i64 original, const T* x, T* y) {
  using W = Wide<T>;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const W turns = static_cast<W>(position[row] / original);
    const W factor = widen(narrow<T>(1 + growth * std::log(1 + turns)));
    for (i64 i = threadIdx.x; i < row_elems; i += blockDim.x) y[row * row_elems + i] = narrow<T>(widen(x[row * row_elems + i]) * factor);
  }
}

}  // namespace

void grow_queries(const Tensor& x, const Tensor& positions, double growth, i64 original, const Tensor& y) {
  if (y.elems() == 0) return;
  for_dtype("grow_queries", x.dtype(), [&]<class T>(T) {
    const i64 rows = positions.elems();
    launch("grow_queries", grow<T>, blocks_for_tasks(rows), dim3(kBlockThreads), rows, x.size(2) * x.size(3), positions.data<i32>(),
           static_cast<Wide<T>>(growth), original, x.data<T>(), y.data<T>());
  });
}

}  // namespace spillway::kernels::cuda

#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/experts/expert_products.h"

namespace spillway::kernels::cuda {
namespace {

// the rows and columns of a thread block's tile of the result, and the number of terms that are in shared memory at a time
constexpr int kTile = 16;

// A product C[m, n] = A[m, k] B[k, n]. a_row is the distance in elements between
// rows of A, a_column that between its columns; b_row and b_column are those of B.
template <class T, class Out>
struct Product {
  const T *a, *b;
  Out* out;
  i64 m, n, k, a_row, a_column, b_row, b_column;
};

// Computes one tile of C. Each thread sums one element in ascending k. Elements outside the matrices count as zero.
template <class T, class Out>
__device__ void multiply_tile(const Product<T, Out>& p, i64 first_row, i64 first_column) {
  using W = Wide<T>;
  __shared__ W a[kTile][kTile + 1], b[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const i64 row = first_row + y, column = first_column + x;
  // Chooses for each operand which thread loads which element, so that adjacent threads load adjacent elements.
  const int a_y = p.a_column == 1 ? y : x, a_x = p.a_column == 1 ? x : y, b_y = p.b_column == 1 ? y : x, b_x = p.b_column == 1 ? x : y;
  W sum = 0;
  for (i64 k = 0; k < p.k; k += kTile) {
    const bool a_inside = first_row + a_y < p.m && k + a_x < p.k, b_inside = k + b_y < p.k && first_column + b_x < p.n;
    a[a_y][a_x] = a_inside ? widen(p.a[(first_row + a_y) * p.a_row + (k + a_x) * p.a_column]) : W(0);
    b[b_y][b_x] = b_inside ? widen(p.b[(k + b_y) * p.b_row + (first_column + b_x) * p.b_column]) : W(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += a[y][i] * b[i][x];
    __syncthreads();
  }
  if (row < p.m && column < p.n) p.out[row * p.n + column] = narrow<Out>(sum);
}

// Computes a product over one expert's rows. These are the rows of A and C, or, if `rows_are_terms`, the terms of the sums.
template <class T, class Out>
__global__ void __launch_bounds__(kTile* kTile) multiply_expert(const i32* range, bool rows_are_terms, Product<T, Out> p) {
  const i64 begin = range[0], rows = range[1] - begin;
  p.a += begin * (rows_are_terms ? p.a_column : p.a_row);
  if (rows_are_terms) {
    p.b += begin * p.b_row, p.k = rows;
  } else {
    p.out += begin * p.n, p.m = rows;
  }
  const i64 across = ceil_div(p.n, i64{kTile}), tiles = ceil_div(p.m, i64{kTile}) * across;
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) multiply_tile(p, tile / across * kTile, tile % across * kTile);
}

template <class T, class Out>
void run(const Tensor& begins, i64 expert, bool rows_are_terms, i64 usual_rows, const Product<T, Out>& p) {
  constexpr i64 kMostBlocks = 1 << 14;
  const i64 tiles = ceil_div(usual_rows, i64{kTile}) * ceil_div(p.n, i64{kTile});
  launch("expert_product", multiply_expert<T, Out>, dim3(static_cast<unsigned>(std::clamp<i64>(tiles, 1, kMostBlocks))), dim3(kTile, kTile),
         begins.data<i32>() + expert, rows_are_terms, p);
}

}  // namespace

void multiply_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out) {
  for_dtype("expert_product", a.dtype(), [&]<class T>(T) {
    run<T, T>(begins, expert, false, ceil_div(a.size(0), begins.elems() - 1),
              {a.data<T>(), b.data<T>(), out.data<T>(), 0, b.size(1), b.size(0), a.size(1), 1, b.stride(0), b.stride(1)});
  });
}

void multiply_over_expert_rows(const Tensor& begins, i64 expert, const Tensor& a, const Tensor& b, const Tensor& out) {
  for_dtypes("expert_product", a.dtype(), out.dtype(), [&]<class T, class Out>(T, Out) {
    run<T, Out>(begins, expert, true, out.size(0),
                {a.data<T>(), b.data<T>(), out.data<Out>(), out.size(0), out.size(1), 0, 1, a.size(1), b.size(1), 1});
  });
}

}  // namespace spillway::kernels::cuda

// Holds what the chunked recurrences of selective_scan.h and delta_rule.h share on the CPU: views of heads and products of packed operands.
// Included by their CPU implementations only. T is the type of the arithmetic, S that of the elements.
#pragma once
#include <algorithm>
#include <utility>

#include "kernels/products/gemm.h"
#include "tensor/tensor.h"

namespace spillway::kernels::scan {

using gemm::Operand;
using gemm::Packed;
using gemm::Side;

inline i64 packed(i64 outer, i64 k) { return gemm::packed_elems<float>(outer, k); }

/// Columns [h * width, (h + 1) * width) of a row of the batch of a view [B, T, C], seen as a matrix [T, width].
template <class S>
struct Rows {
  S* data;
  i64 stride;
  Rows(const Tensor& view, i64 b, i64 h, i64 width) : data(view.data<S>() + b * view.stride(0) + h * width), stride(view.stride(1)) {}
  S* row(i64 t) const { return data + t * stride; }
  // Operands of products that begin at row t. The outer dimension is T in by_row(), and the columns in by_column().
  Operand<S> by_row(i64 t) const { return {row(t), stride, 1}; }
  Operand<S> by_column(i64 t) const { return {row(t), 1, stride}; }
};

/// Takes pieces of a task's workspace, one after the other.
template <class T>
struct Pieces {
  T* next;
  T* take(i64 elems) { return std::exchange(next, next + round_up(elems, 16)); }
};

/// Computes c[m, n] = A[m, k] B[k, n] of packed operands, or adds the product to c.
template <class T>
void multiply(i64 m, i64 n, i64 k, const T* a, const T* b, T* c, i64 stride, bool add = false) {
  for (i64 first = 0; first < k; first += gemm::kDepth<T>, add = true) {
    gemm::multiply<T, T>(m, n, std::min(gemm::kDepth<T>, k - first), Packed<T>{a, k, first}, Packed<T>{b, k, first},
                         {c, stride, add ? c : nullptr, stride});
  }
}

}  // namespace spillway::kernels::scan

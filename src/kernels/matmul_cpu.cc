#include "kernels/matmul.h"

#include <algorithm>

#include "base/error.h"

namespace spillway::kernels {
namespace {

using gemm::kDepth;
using gemm::kStrip;
using gemm::Operand;
using gemm::Output;
using gemm::Side;
using gemm::Store;

// The packed operand may take this much; longer inner extents are walked in slabs.
constexpr i64 kPackedBytes = 4 * kMiB;

template <class T>
i64 slab_depth(i64 outer, i64 k) {
  const i64 row_bytes = round_up(outer, kStrip) * static_cast<i64>(sizeof(T));
  return std::min(k, std::max<i64>(1, kPackedBytes / (row_bytes * kDepth<T>)) * kDepth<T>);
}

template <class T>
i64 workspace_bytes(i64 m, i64 n, i64 k) {
  const i64 outer = std::min(m, n);
  return gemm::packed_elems(outer, slab_depth<T>(outer, k)) * static_cast<i64>(sizeof(T));
}

// One product C = A B, its smaller operand packed ahead ("resident"), the other by each task on its stack ("streamed").
template <class T>
struct Product {
  i64 m, n, k;
  Operand<T> a, b;
  Output<T> c;
  Store store;
  T* packed;

  bool resident_is_a() const { return m <= n; }
  i64 resident_outer() const { return std::min(m, n); }
  i64 strips() const { return ceil_div(std::max(m, n), kStrip); }

  void pack_resident(i64 strip, i64 slab, i64 depth) const {
    const i64 begin = strip * kStrip, outer = std::min(kStrip, resident_outer() - begin);
    gemm::pack(resident_is_a() ? Side::a : Side::b, (resident_is_a() ? a : b).from(begin, slab), outer, depth, packed + begin * depth);
  }

  void multiply_strip(i64 strip, i64 slab, i64 depth) const {
    alignas(64) T streamed[kStrip * kDepth<T>];
    const i64 begin = strip * kStrip, outer = std::min(kStrip, std::max(m, n) - begin);
    Output<T> out = c;
    out.data += resident_is_a() ? begin : begin * c.row_stride;
    for (i64 at = 0; at < depth; at += kDepth<T>) {
      const i64 chunk = std::min(kDepth<T>, depth - at), first_k = slab + at;
      const Store how = first_k == 0 ? store : Store::add;
      out.bias = c.bias && first_k + chunk == k ? c.bias + (resident_is_a() ? begin : 0) : nullptr;
      if (resident_is_a()) {
        gemm::pack(Side::b, b.from(begin, first_k), outer, chunk, streamed);
        gemm::multiply<T>(m, outer, chunk, {packed, depth, at}, {streamed, chunk}, out, how);
      } else {
        gemm::pack(Side::a, a.from(begin, first_k), outer, chunk, streamed);
        gemm::multiply<T>(outer, n, chunk, {streamed, chunk}, {packed, depth, at}, out, how);
      }
    }
  }

  void run() const {
    const Stream& stream = Stream::current();
    const i64 step = slab_depth<T>(resident_outer(), k);
    for (i64 slab = 0; slab < k; slab += step) {
      const i64 depth = std::min(step, k - slab);
      stream.run(ceil_div(resident_outer(), kStrip), [&](i64 strip, int) { pack_resident(strip, slab, depth); });
      stream.run(strips(), [&](i64 strip, int) { multiply_strip(strip, slab, depth); });
    }
  }
};

void check(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace) {
  const bool ranks = a.rank() == 2 && b.rank() == 2 && out.rank() == 2;
  if (!ranks || a.size(1) != b.size(0) || out.size(0) != a.size(0) || out.size(1) != b.size(1) || a.size(1) < 1) {
    throw Error(ErrorCode::bug, "[matmul] expected [M, K] times [K, N] into [M, N], got " + to_string(a.shape()) + ", " +
                                    to_string(b.shape()) + ", " + to_string(out.shape()));
  }
  require(a.dtype() == out.dtype() && b.dtype() == out.dtype(), "[matmul] expected one dtype");
  require(out.size(1) == 1 || out.stride(1) == 1, "[matmul] the rows of the result must be contiguous");
  require(!bias.defined() || (bias.elems() == out.size(1) && bias.is_contiguous() && bias.dtype() == out.dtype()),
          "[matmul] the bias must be contiguous with one element a column");
  require(workspace.bytes() >= matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), out.dtype()),
          "[matmul] the workspace is too small");
}

template <class T>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  const Product<T> product{out.size(0),
                           out.size(1),
                           a.size(1),
                           {a.data<T>(), a.stride(0), a.stride(1)},
                           {b.data<T>(), b.stride(1), b.stride(0)},
                           {out.data<T>(), out.stride(0), bias.defined() ? bias.data<T>() : nullptr},
                           store,
                           reinterpret_cast<T*>(workspace.raw())};
  product.run();
}

}  // namespace

i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType dtype) {
  return dtype == DType::f64 ? workspace_bytes<double>(m, n, k) : workspace_bytes<float>(m, n, k);
}

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  check(a, b, bias, out, workspace);
  if (out.device().is_meta() || out.elems() == 0) return;
  out.dtype() == DType::f64 ? run<double>(a, b, bias, out, workspace, store) : run<float>(a, b, bias, out, workspace, store);
}

}  // namespace spillway::kernels

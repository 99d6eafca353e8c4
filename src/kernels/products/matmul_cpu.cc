#include "kernels/products/matmul.h"

#include <algorithm>

#include "kernels/accumulate.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/has_cuda.h"
#include "kernels/products/gemm.h"
#include "kernels/products/gemm_few_rows.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace {

using gemm::kDepth;
using gemm::kStrip;
using gemm::Operand;
using gemm::Output;
using gemm::packed_depth;
using gemm::packed_elems;
using gemm::PanelOf;
using gemm::Side;

// The upper limit, in bytes, of the packed operand. The operand is small enough to stay in the second-level cache while all
// strips are multiplied with it. If k is larger than fits, it is cut into slabs. Each further slab costs reading the sums
// again, 8 bytes per element of C. A packed operand that leaves the cache would cost more: 4 bytes per row for each k.
constexpr i64 kPackedBytes = kMiB / 2;

// Results of at least so many bytes are written past the caches where that is possible. The second-level caches of processors with a tile
// unit have 2 MiB.
constexpr i64 kLargeBytes = 2 * kMiB;

// The number of k that are added in one chain. It is the depth of the panels, except
// that bf16 always uses the depth of bf16 panels, also if it is widened to float panels.
template <class T, class P>
constexpr i64 kChunk = std::is_same_v<T, BFloat16> ? kDepth<T> : kDepth<P>;

template <class T, class P>
i64 slab_depth(i64 outer, i64 k) {
  const i64 row_bytes = round_up(outer, kStrip) * static_cast<i64>(sizeof(P));
  return std::min(k, std::max<i64>(1, kPackedBytes / (row_bytes * kChunk<T, P>)) * kChunk<T, P>);
}

template <class T, class P>
i64 packed_bytes(i64 m, i64 n, i64 k) {
  const i64 outer = std::min(m, n);
  return packed_elems<P>(outer, slab_depth<T, P>(outer, k)) * static_cast<i64>(sizeof(P));
}

// True if C is too narrow to hold the sums of several chunks without rounding in between. The workspace then keeps these sums.
template <class T, class Out>
constexpr bool kNarrows = !std::is_same_v<Wide<T>, Out>;

// The layout of the workspace: the packed operand, then the sums of several chunks if C is too narrow for them, then the bias if it has to
// be widened to the panels' type.
template <class T, class P, class Out>
struct Workspace {
  i64 sums, bias, bytes;  // the byte offsets of the sums and of the bias, and the total size
  Workspace(i64 m, i64 n, i64 k) {
    constexpr i64 kWideBytes = sizeof(Wide<T>);
    bytes = packed_bytes<T, P>(m, n, k);
    const auto take = [&](bool wanted, i64 elems) {
      const i64 begin = round_up(bytes, 64);
      if (wanted) bytes = begin + elems * kWideBytes;
      return begin;
    };
    sums = take(kNarrows<T, Out> && k > kChunk<T, P>, m * n);
    bias = take(!std::is_same_v<T, P>, n);
  }
};

// One product C = A B. Its smaller operand, called "resident", is packed before the tasks start. Each task packs its part of the other
// operand, called "streamed", on its stack. TB is the dtype of B: T, or a dtype that packing widens to P.
template <class T, class TB, class P, class Out>
struct Product {
  static constexpr i64 kDepth = kChunk<T, P>;
  i64 m, n, k;
  Operand<T> a;
  Operand<TB> b;
  Output<P, Out> c;
  P* packed;
  Wide<T>* sums;  // [m, n]: the sums of all chunks except the last; they are in C itself if its type is wide enough
  int threads;

  bool resident_is_a() const { return m <= n; }
  i64 resident_outer() const { return std::min(m, n); }
  i64 strips() const { return ceil_div(std::max(m, n), kStrip); }

  void pack_resident(i64 strip, i64 slab, i64 depth) const {
    const i64 begin = strip * kStrip, outer = std::min(kStrip, resident_outer() - begin);
    P* to = packed + begin * packed_depth<P>(depth);
    resident_is_a() ? gemm::pack(Side::a, a.from(begin, slab), outer, depth, to)
                    : gemm::pack(Side::b, b.from(begin, slab), outer, depth, to);
  }

  // Returns the memory of the streamed operand that this thread will probably pack next, so that it can be prefetched. That is
  // the next chunk of this strip, or the first chunk of the strip that the thread takes next if all threads are equally fast.
  gemm::Ahead after(i64 begin, i64 at, i64 slab, i64 depth) const {
    if (at >= depth) at = 0, begin += threads * kStrip;
    const i64 outer = std::min(kStrip, std::max(m, n) - begin), chunk = std::min(kDepth, depth - at);
    if (outer <= 0) return {};
    return resident_is_a() ? gemm::ahead_of(b.from(begin, slab + at), outer, chunk)
                           : gemm::ahead_of(a.from(begin, slab + at), outer, chunk);
  }

  // Multiplies the strip that begins at `begin` with the resident operand, over chunk [at, at + chunk) of the packed slab.
  template <class To>
  void multiply_chunk(i64 begin, i64 outer, i64 slab, i64 chunk, i64 depth, i64 at, P* streamed, Output<P, To> out) const {
    const gemm::Ahead next = after(begin, at + chunk, slab, depth);
    if (resident_is_a()) {
      gemm::pack(Side::b, b.from(begin, slab + at), outer, chunk, streamed);
      gemm::multiply<P, To>(m, outer, chunk, {packed, depth, at}, {streamed, chunk}, out, next);
    } else {
      gemm::pack(Side::a, a.from(begin, slab + at), outer, chunk, streamed);
      gemm::multiply<P, To>(outer, n, chunk, {streamed, chunk}, {packed, depth, at}, out, next);
    }
  }

  void multiply_strip(i64 strip, i64 slab, i64 depth) const {
    alignas(64) P streamed[kStrip * kDepth];
    const i64 begin = strip * kStrip, outer = std::min(kStrip, std::max(m, n) - begin);
    const auto place = [&](i64 stride) { return resident_is_a() ? begin : begin * stride; };
    const i64 stride = kNarrows<T, Out> ? n : c.row_stride;
    Wide<T>* before = sums ? sums + place(stride) : nullptr;
    for (i64 at = 0; at < depth; at += kDepth) {
      const i64 chunk = std::min(kDepth, depth - at), first_k = slab + at;
      const Wide<T>* added = first_k == 0 ? (c.added ? c.added + place(c.added_stride) : nullptr) : before;
      if (first_k + chunk == k) {
        const P* bias = c.bias ? c.bias + (resident_is_a() ? begin : 0) : nullptr;
        multiply_chunk<Out>(begin, outer, slab, chunk, depth, at, streamed,
                            {c.data + place(c.row_stride), c.row_stride, added, stride, bias, c.past_caches});
      } else {
        multiply_chunk<Wide<T>>(begin, outer, slab, chunk, depth, at, streamed, {before, stride, added, stride});
      }
    }
  }

  void run() const {
    const Stream& stream = Stream::current();
    const i64 step = slab_depth<T, P>(resident_outer(), k);
    for (i64 slab = 0; slab < k; slab += step) {
      const i64 depth = std::min(step, k - slab);
      stream.run(ceil_div(resident_outer(), kStrip), [&](i64 strip, int) { pack_resident(strip, slab, depth); });
      stream.run(strips(), [&](i64 strip, int) { multiply_strip(strip, slab, depth); });
    }
  }
};

// Returns how many columns one task computes in a product with few rows. Contiguous columns are read fastest in wide pieces, so there are
// only as many tasks as keep all threads busy. Columns with contiguous k are long stretches of memory already, so few of them are enough.
template <class T>
i64 few_rows_task(i64 n, bool contiguous_columns, i64 threads) {
  constexpr i64 kLine = 64 / static_cast<i64>(sizeof(T)), kFewestLines = 12, kMostLines = 48, kColumns = 32;
  if (!contiguous_columns) return kColumns * std::clamp<i64>(n / (32 * kColumns), 1, 8);
  const i64 lines = ceil_div(n, kLine), tasks = threads * ceil_div(lines, threads * kMostLines);
  return kLine * std::max(ceil_div(lines, tasks), kFewestLines);
}

// Computes a product with few rows of A (gemm_few_rows.h), with the words of A in the workspace. Returns false, without
// having done anything, if takes_few_rows() is false for the product or the words do not fit into the workspace.
template <class T, class TB, class P, class Out>
bool ran_few_rows(const Product<T, TB, P, Out>& product) {
  if constexpr (gemm::kHasFewRows<TB, P>) {
    const auto& [m, n, k, a, b, c, packed, sums, threads] = product;
    const i64 bytes = gemm::few_rows_words<P>(m, k) * static_cast<i64>(sizeof(u32));
    if (!gemm::takes_few_rows(m, n, b) || bytes > packed_bytes<T, P>(m, n, k)) return false;
    u32* words = reinterpret_cast<u32*>(packed);
    gemm::pack_words<T, P>(a, m, k, words);
    const gemm::FewRows<P, TB, Out> few{m, n, k, kChunk<T, P>, words, b, c};
    Stream::current().for_ranges(n, few_rows_task<TB>(n, b.k_stride != 1, threads),
                                 [&](i64 begin, i64 end) { gemm::multiply_few_rows(few, begin, end); });
    return true;
  }
  return false;
}

void check(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  const bool ranks = a.rank() == 2 && b.rank() == 2 && out.rank() == 2;
  if (!ranks || a.size(1) != b.size(0) || out.size(0) != a.size(0) || out.size(1) != b.size(1) || a.size(1) < 1) {
    throw Error(ErrorCode::bug, "[matmul] expected [M, K] times [K, N] into [M, N], got " + to_string(a.shape()) + ", " +
                                    to_string(b.shape()) + ", " + to_string(out.shape()));
  }
  require(a.dtype() == b.dtype() || (widens(a.dtype(), b.dtype()) && out.dtype() == DType::f32),
          "[matmul] expected operands of the same dtype, or on a CPU f32 times bf16 with an f32 result");
  require(out.size(1) == 1 || out.stride(1) == 1, "[matmul] expected a result with contiguous rows");
  require(store == Store::replace || out.dtype() == wide_dtype(out.dtype()),
          "[matmul] expected a result in f32 or f64 to add to, because adding to a bf16 or f16 result would round twice");
  require(!bias.defined() || (bias.elems() == out.size(1) && bias.is_contiguous() && bias.dtype() == a.dtype()),
          "[matmul] expected a contiguous bias of the operands' dtype, with one element for each column of the result");
  require(workspace.bytes() >= matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype()),
          "[matmul] expected a workspace of at least matmul_workspace_bytes()");
}

template <class T, class TB, class P, class Out>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  const i64 m = out.size(0), n = out.size(1), k = a.size(1), stride = out.stride(0);
  const Workspace<T, P, Out> parts(m, n, k);
  Output<P, Out> c{out.data<Out>(), stride, nullptr, stride, nullptr};
  c.past_caches = k <= kChunk<T, P> && m * n * static_cast<i64>(sizeof(Out)) >= kLargeBytes;
  if constexpr (std::is_same_v<T, P>) {
    c.bias = data_or_null<T>(bias);
  } else if (bias.defined()) {
    P* wide = reinterpret_cast<P*>(workspace.raw() + parts.bias);
    std::transform(bias.data<T>(), bias.data<T>() + n, wide, widen<T>);
    c.bias = wide;
  }
  Wide<T>* sums = nullptr;
  if constexpr (kNarrows<T, Out>) {
    if (k > kChunk<T, P>) sums = reinterpret_cast<Wide<T>*>(workspace.raw() + parts.sums);
  } else {
    sums = c.data;
    if (store == Store::add) c.added = c.data;
  }
  const Operand<T> left{a.data<T>(), a.stride(0), a.stride(1)};
  const Operand<TB> right{b.data<TB>(), b.stride(1), b.stride(0)};
  const Product<T, TB, P, Out> product{
      m, n, k, left, right, c, reinterpret_cast<P*>(workspace.raw()), sums, Stream::current().thread_count()};
  if (!ran_few_rows(product)) product.run();
}

// Calls f(T{}, P{}, Out{}), where T is the operands' type, P the element type of the panels and Out the result's type.
template <class F>
void for_panels(DType from, DType to, F f) {
  for_dtypes("matmul", from, to, [&]<class T, class Out>(T, Out) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (gemm::pairs_in_use() == gemm::Pairs::widened) return f(T{}, float{}, Out{});
    }
    f(T{}, PanelOf<T>{}, Out{});
  });
}

// Returns the workspace bytes that cuBLASLt may use: room for sixteen partial results, from cutting k into sixteen parts, with rows and
// columns rounded up to whole tiles. The upper limit is what cuBLAS uses by default on Hopper (cublasSetWorkspace).
i64 gpu_workspace_bytes(i64 m, i64 n, DType out) {
  constexpr i64 kParts = 16, kTile = 128;
  return std::min(32 * kMiB, kParts * round_up(m, kTile) * round_up(n, kTile) * size_of(wide_dtype(out)));
}

double flops_of(const Tensor& a, const Tensor& b) {
  return 2.0 * static_cast<double>(a.size(0) * a.size(1)) * static_cast<double>(b.size(1));
}

}  // namespace

i64 matmul_workspace_bytes(i64 m, i64 n, i64 k, DType operands, DType out) {
  if (Stream::current().device.works_as_cuda()) return gpu_workspace_bytes(m, n, out);
  i64 bytes = 0;
  for_panels(operands, out, [&]<class T, class P, class Out>(T, P, Out) { bytes = Workspace<T, P, Out>(m, n, k).bytes; });
  return bytes;
}

bool widens(DType a, DType b) { return a == DType::f32 && b == DType::bf16 && !Stream::current().device.works_as_cuda(); }

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  check(a, b, bias, out, workspace, store);
  count_flops(flops_of(a, b));
  if (out.device().is_meta() || out.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(out, matmul(a, b, bias, out, workspace, store));
  if (widens(a.dtype(), b.dtype())) return run<float, BFloat16, float, float>(a, b, bias, out, workspace, store);
  for_panels(a.dtype(), out.dtype(), [&]<class T, class P, class Out>(T, P, Out) { run<T, T, P, Out>(a, b, bias, out, workspace, store); });
}

void matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace) {
  check(a, b, bias, out, workspace, Store::replace);
  require(addend.shape() == out.shape() && addend.dtype() == out.dtype() && out.dtype() == a.dtype() && addend.is_contiguous() &&
              out.is_contiguous() && (addend.raw() != out.raw() || out.device().is_meta()),
          "[matmul_onto] expected two separate contiguous matrices with the shape of the product and the dtype of the operands");
  if constexpr (kHasCuda) {
    if (out.device().is_cuda() && cuda::matmul_onto(addend, a, b, bias, out, workspace)) return count_flops(flops_of(a, b));
  }
  matmul(a, b, bias, out, workspace);
  add(addend, out, out);
}

namespace {

void check_gelu(const Tensor& kept, const Tensor& out) {
  require(kept.shape() == out.shape() && kept.dtype() == out.dtype() && kept.is_contiguous() && out.is_contiguous(),
          "[matmul_gelu] expected two contiguous matrices, before and after gelu, of the same shape and dtype");
}

}  // namespace

void matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace) {
  check(a, b, bias, out, workspace, Store::replace);
  check_gelu(kept, out);
  if constexpr (kHasCuda) {
    if (out.device().is_cuda() && cuda::matmul_gelu(a, b, bias, kept, out, workspace)) return count_flops(flops_of(a, b));
  }
  matmul(a, b, bias, kept, workspace);
  unary(Unary::gelu_tanh, kept, out);
}

void matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace) {
  check(a, b, {}, out, workspace, Store::replace);
  check_gelu(kept, out);
  if constexpr (kHasCuda) {
    if (out.device().is_cuda() && cuda::matmul_gelu_gradient(a, b, kept, out, workspace)) return count_flops(flops_of(a, b));
  }
  matmul(a, b, {}, out, workspace);
  unary_gradient(Unary::gelu_tanh, kept, out, out);
}

}  // namespace spillway::kernels

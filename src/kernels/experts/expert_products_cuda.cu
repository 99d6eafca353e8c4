// Products over the rows of experts on a GPU. bf16 and f16 are multiplied on tensor cores (expert_mma_cuda.h). The kernels here multiply
// f32, f64, and extents and addresses that tensor cores do not take: each thread sums some elements of the result term by term.
#include "kernels/experts/expert_products.h"

#include "device/launch_cuda.h"
#include "kernels/dispatch.h"
#include "kernels/experts/expert_tiles_cuda.h"

namespace spillway::kernels::cuda {
namespace {

using expert_mma::Experts;
using expert_mma::kMostExperts;

// The rows and columns of a thread block's tile of the result, the number of terms that are in shared memory at a time, and the rows and
// columns of the 16 elements that each of the 256 threads sums.
constexpr int kTile = 64, kTerms = 16, kEach = 4, kAcross = kTile / kEach, kThreads = kAcross * kAcross;

// Computes one tile of C[m, n] = A[m, k] B[k, n], each element in ascending k. a(row, term) and b(term, column) return elements, in the
// wide type W, and store(row, column, sum) takes the results. Elements outside of the matrices count as zero. Adjacent threads load
// adjacent terms if `terms_first`, and adjacent rows or columns otherwise.
template <class W, bool kATermsFirst, bool kBTermsFirst, class A, class B, class Store>
__device__ void multiply_tile(i64 m, i64 n, i64 k, i64 first_row, i64 first_column, A a, B b, Store store) {
  __shared__ W rows[kTerms][kTile + 1], columns[kTerms][kTile + 1];
  const int thread = static_cast<int>(threadIdx.x), x = thread % kAcross, y = thread / kAcross;
  W sum[kEach][kEach] = {};
  for (i64 term = 0; term < k; term += kTerms) {
    for (int i = thread; i < kTerms * kTile; i += kThreads) {
      const int a_term = kATermsFirst ? i % kTerms : i / kTile, row = kATermsFirst ? i / kTerms : i % kTile;
      const int b_term = kBTermsFirst ? i % kTerms : i / kTile, column = kBTermsFirst ? i / kTerms : i % kTile;
      rows[a_term][row] = first_row + row < m && term + a_term < k ? a(first_row + row, term + a_term) : W(0);
      columns[b_term][column] = term + b_term < k && first_column + column < n ? b(term + b_term, first_column + column) : W(0);
    }
    __syncthreads();
    for (int t = 0; t < kTerms; ++t) {
      W left[kEach], right[kEach];
      for (int i = 0; i < kEach; ++i) left[i] = rows[t][y + i * kAcross], right[i] = columns[t][x + i * kAcross];
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sum[i][j] += left[i] * right[j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const i64 row = first_row + y + i * kAcross, column = first_column + x + j * kAcross;
      if (row < m && column < n) store(row, column, sum[i][j]);
    }
  }
}

// Returns value i of a weight in any format, rounded to T.
template <class T>
__device__ Wide<T> value_at(WeightFormat format, const std::byte* weight, i64 i, const float* levels) {
  const auto of_codes = [&](const auto& codes) {
    return widen(narrow<T>(static_cast<Wide<T>>(codes.level(static_cast<int>(i % kCodes), levels) * codes.scale)));
  };
  if (format == WeightFormat::plain) return widen(reinterpret_cast<const T*>(weight)[i]);
  if (format == WeightFormat::int8) return of_codes(Codes<WeightFormat::int8>(weight, i - i % kCodes));
  if (format == WeightFormat::nf4) return of_codes(Codes<WeightFormat::nf4>(weight, i - i % kCodes));
  return widen(narrow<T>(static_cast<Wide<T>>(widen(reinterpret_cast<const BFloat16*>(weight)[i]))));
}

template <class T, bool kTransposed>
__global__ void __launch_bounds__(kThreads) multiply_rows(expert_mma::RowsProblem<T> p, WeightFormat format, Nf4Levels levels) {
  __shared__ float level[16];
  levels.copy_to(level);
  __syncthreads();
  const i64 n = p.n, k = p.k;
  const int across = ceil_div(p.n, kTile);
  const auto tile = expert_mma::row_tile<kTile>(p.weights.begin, p.weights.count, static_cast<int>(blockIdx.x) / across);
  if (tile.expert < 0) return;
  const std::byte* const weight = p.weights.at[tile.expert];
  const T* const from = p.a + tile.first * k;
  T* const to = p.out + tile.first * n;
  multiply_tile<Wide<T>, true, kTransposed>(
      tile.rows, n, k, 0, i64{static_cast<int>(blockIdx.x) % across} * kTile,
      [=](i64 row, i64 term) { return widen(from[row * k + term]); },
      [&](i64 term, i64 column) { return value_at<T>(format, weight, kTransposed ? column * k + term : term * n + column, level); },
      [=](i64 row, i64 column, Wide<T> sum) { to[row * n + column] = narrow<T>(sum); });
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads) multiply_over_rows(expert_mma::WeightProblem<T, Out> p) {
  const int across = ceil_div(p.inputs, kTile), of_expert = across * ceil_div(p.outputs, kTile);
  const int expert = static_cast<int>(blockIdx.x) / of_expert, place = static_cast<int>(blockIdx.x) % of_expert;
  Out* const out = p.out.at[expert];
  if (out == nullptr) return;
  const i64 begin = p.out.begin[expert], outputs = p.outputs, inputs = p.inputs;
  const T *a = p.a + begin * outputs, *b = p.b + begin * inputs;
  multiply_tile<Wide<T>, false, false>(
      outputs, inputs, p.out.begin[expert + 1] - begin, i64{place / across} * kTile, i64{place % across} * kTile,
      [=](i64 row, i64 term) { return widen(a[term * outputs + row]); },
      [=](i64 term, i64 column) { return widen(b[term * inputs + column]); },
      [=](i64 row, i64 column, Wide<T> sum) { out[row * inputs + column] = narrow<Out>(sum); });
}

// Returns the experts from number `first` on, as many as a launch takes.
template <class At>
Experts<At> experts_from(const Tensor& begins, size_t first, std::span<const Tensor> tensors) {
  Experts<At> some{begins.data<i32>() + first, static_cast<int>(std::min<size_t>(kMostExperts, tensors.size() - first)), {}};
  for (int e = 0; e < some.count; ++e) {
    const Tensor& one = tensors[first + static_cast<size_t>(e)];
    some.at[e] = one.defined() ? reinterpret_cast<At*>(one.raw()) : nullptr;
  }
  return some;
}

// Returns whether tensor cores take products with these weights or results.
bool on_tensor_cores(DType dtype, WeightFormat format, const Shape& shape, const Tensor& a, const Tensor& b, std::span<const Tensor> each) {
  constexpr i64 kMostElems = 1 << 30;
  const bool format_fits = format != WeightFormat::bf16 || dtype == DType::bf16;
  if (!is_half(dtype) || !format_fits || shape[0] % expert_mma::kWordElems != 0 || shape[1] % expert_mma::kWordElems != 0 ||
      shape.elems() > kMostElems)
    return false;
  const bool plain = format == WeightFormat::plain || format == WeightFormat::bf16;
  return is_aligned(a.raw(), 16) && is_aligned(b.raw(), 16) &&
         std::ranges::all_of(each, [&](const Tensor& one) { return !one.defined() || is_aligned(one.raw(), plain ? 16 : 8); });
}

}  // namespace

void multiply_expert_rows(const Tensor& begins, ExpertProduct product, const Tensor& a, const ExpertWeights& w, const Tensor& out) {
  const bool on_cores = on_tensor_cores(a.dtype(), w.format, w.shape, a, out, w.stored);
  const auto of = [&]<class T>(T) {
    for (size_t first = 0; first < w.stored.size(); first += kMostExperts) {
      const expert_mma::RowsProblem<T> p{a.data<T>(),
                                         out.data<T>(),
                                         a.size(0),
                                         static_cast<int>(out.size(1)),
                                         static_cast<int>(a.size(1)),
                                         experts_from<const std::byte>(begins, first, w.stored)};
      if constexpr (kIsHalf<T>) {
        if (on_cores) {
          expert_mma::multiply_rows(p, product, w.format);
          continue;
        }
      }
      const i64 blocks = expert_mma::most_row_tiles<kTile>(p.rows, p.weights.count) * ceil_div(p.n, kTile);
      launch("expert rows", product == ExpertProduct::with_transpose ? multiply_rows<T, true> : multiply_rows<T, false>,
             dim3(static_cast<unsigned>(blocks)), dim3(kThreads), p, w.format, Nf4Levels());
    }
  };
  for_dtype("expert_product", a.dtype(), of);
}

void multiply_over_expert_rows(const Tensor& begins, const Tensor& a, const Tensor& b, std::span<const Tensor> out) {
  const Tensor& some = *std::ranges::find_if(out, &Tensor::defined);
  const bool on_cores = on_tensor_cores(a.dtype(), WeightFormat::plain, some.shape(), a, b, out);
  for_dtypes("expert_product", a.dtype(), some.dtype(), [&]<class T, class Out>(T, Out) {
    for (size_t first = 0; first < out.size(); first += kMostExperts) {
      const expert_mma::WeightProblem<T, Out> p{a.data<T>(), b.data<T>(), static_cast<int>(a.size(1)), static_cast<int>(b.size(1)),
                                                experts_from<Out>(begins, first, out)};
      if constexpr (kIsHalf<T>) {
        if (on_cores) {
          expert_mma::multiply_over_rows(p);
          continue;
        }
      }
      const i64 blocks = i64{ceil_div(p.outputs, kTile)} * ceil_div(p.inputs, kTile) * p.out.count;
      launch("expert weights", multiply_over_rows<T, Out>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), p);
    }
  });
}

}  // namespace spillway::kernels::cuda

#include <algorithm>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kGrain = 1 << 14;  // the approximate number of elements of a task

void check_sorting(const Tensor& experts, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice) {
  const Shape rows{experts.elems()};
  require(experts.rank() == 2 && row_of_choice.shape() == experts.shape() && choice_of_row.shape() == rows && begins.rank() == 1 &&
              begins.elems() >= 2,
          "[sort_by_expert] expected experts [N, K], row_of_choice [N, K], choice_of_row [N K] and begins [E + 1] with E > 0");
  for (const Tensor& t : {experts, begins, choice_of_row, row_of_choice})
    require(t.dtype() == DType::int32 && t.is_contiguous(), "[sort_by_expert] expected contiguous int32 tensors");
  require(experts.elems() < std::numeric_limits<i32>::max(),
          "[sort_by_expert] expected fewer than 2^31 choices: use a smaller micro-batch");
}

// Checks that `tokens` and `rows` have equally many channels and the same dtype, and that `choices` (of any shape) has one element for each
// row.
void check_rows(const Tensor& tokens, const Tensor& rows, const Tensor& choices, const Tensor& weights) {
  require(tokens.rank() == 2 && rows.rank() == 2 && tokens.size(1) == rows.size(1) && tokens.dtype() == rows.dtype() &&
              choices.elems() == rows.size(0) && tokens.size(0) > 0 && rows.size(0) % tokens.size(0) == 0,
          "[expert_rows] expected tokens [N, C] and rows [N K, C] of the same dtype, and one index for each row");
  require(choices.dtype() == DType::int32 && choices.is_contiguous() && tokens.is_contiguous() && rows.is_contiguous(),
          "[expert_rows] expected contiguous values and contiguous int32 indices");
  require(!weights.defined() || (weights.elems() == rows.size(0) && weights.is_contiguous() && weights.dtype() == wide_dtype(rows.dtype())),
          "[expert_rows] expected one contiguous weight for each row, in f32 (f64 if the rows are f64)");
}

}  // namespace

// The workspace holds the number of choices of each expert in each stretch.
i64 sort_by_expert_workspace_bytes(i64 choices, i64 experts) {
  if (!Stream::current().device.works_as_cuda()) return 0;
  return choice_stretches(choices).count * experts * size_of(DType::int32);
}

void sort_by_expert(const Tensor& experts, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice,
                    const Tensor& workspace) {
  check_sorting(experts, begins, choice_of_row, row_of_choice);
  if (experts.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(experts, sort_by_expert(experts, begins, choice_of_row, row_of_choice, workspace));
  const auto expert = experts.span<i32>(), begin = begins.span<i32>(), choice = choice_of_row.span<i32>(), row = row_of_choice.span<i32>();
  std::ranges::fill(begin, 0);
  for (const i32 e : expert) {
    require(e >= 0 && e + 1 < static_cast<i32>(begin.size()), "[sort_by_expert] expected expert indices in [0, E)");
    ++begin[static_cast<size_t>(e) + 1];
  }
  for (size_t e = 1; e < begin.size(); ++e) begin[e] += begin[e - 1];
  // The loop increments each begin[e] to begin[e + 1]; the lines after it move all of them by one place.
  for (size_t c = 0; c < expert.size(); ++c) {
    row[c] = begin[static_cast<size_t>(expert[c])]++;
    choice[static_cast<size_t>(row[c])] = static_cast<i32>(c);
  }
  std::copy_backward(begin.begin(), begin.end() - 1, begin.end());
  begin[0] = 0;
}

void gather_rows(const Tensor& from, const Tensor& choice_of_row, const Tensor& weights, const Tensor& to) {
  check_rows(from, to, choice_of_row, weights);
  if (to.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(to, gather_rows(from, choice_of_row, weights, to));
  for_dtype("gather_rows", to.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 C = to.size(1), K = to.size(0) / from.size(0);
    const T* x = from.data<T>();
    T* y = to.data<T>();
    const i32* choice = choice_of_row.data<i32>();
    const W* weight = data_or_null<W>(weights);
    Stream::current().for_ranges(to.size(0), ceil_div(kGrain, C), [=](i64 begin, i64 end) {
      for (i64 r = begin; r < end; ++r) {
        const T* row = x + choice[r] / K * C;
        if (!weight) {
          std::copy_n(row, C, y + r * C);
          continue;
        }
        const W w = weight[choice[r]];
        for (i64 c = 0; c < C; ++c) y[r * C + c] = narrow<T>(w * widen(row[c]));
      }
    });
  });
}

void sum_rows(const Tensor& from, const Tensor& row_of_choice, const Tensor& weights, const Tensor& to) {
  check_rows(to, from, row_of_choice, weights);
  if (to.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(to, sum_rows(from, row_of_choice, weights, to));
  for_dtype("sum_rows", to.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const i64 C = to.size(1), K = from.size(0) / to.size(0);
    const T* x = from.data<T>();
    T* y = to.data<T>();
    const i32* row = row_of_choice.data<i32>();
    const W* weight = data_or_null<W>(weights);
    Stream::current().for_ranges(to.size(0), ceil_div(kGrain, C), [=](i64 begin, i64 end) {
      for (i64 n = begin; n < end; ++n) {
        for (i64 c = 0; c < C; ++c) {
          W sum = 0;
          for (i64 k = n * K; k < (n + 1) * K; ++k) {
            const W value = widen(x[row[k] * C + c]);
            sum += weight ? weight[k] * value : value;
          }
          y[n * C + c] = narrow<T>(sum);
        }
      }
    });
  });
}

void row_products(const Tensor& a, const Tensor& b, const Tensor& row_of_choice, const Tensor& products) {
  check_rows(a, b, row_of_choice, products);
  if (products.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(products, row_products(a, b, row_of_choice, products));
  for_dtype("row_products", a.dtype(), [&]<class T>(T) {
    const i64 C = a.size(1), K = b.size(0) / a.size(0);
    const T *x = a.data<T>(), *y = b.data<T>();
    const i32* row = row_of_choice.data<i32>();
    Wide<T>* to = products.data<Wide<T>>();
    Stream::current().for_ranges(b.size(0), ceil_div(kGrain, C), [=](i64 begin, i64 end) {
      for (i64 k = begin; k < end; ++k) {
        const T *left = x + k / K * C, *right = y + row[k] * C;
        double sum = 0;
        for (i64 c = 0; c < C; ++c) sum += static_cast<double>(widen(left[c])) * static_cast<double>(widen(right[c]));
        to[k] = static_cast<Wide<T>>(sum);
      }
    });
  });
}

}  // namespace spillway::kernels

#include "kernels/dispatch.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/packs_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Sorts the choices by expert. One thread block sorts the choices of one expert at a time. Its threads take adjacent stretches of the list
// of choices. A thread's first row comes after the rows of all experts with a lower index, and after those that the earlier threads of the
// block find.
__global__ void sort_choices(const i32* expert, i64 choices, i64 experts, i32* begin, i32* choice_of_row, i32* row_of_choice) {
  __shared__ i32 lesser[kBlockThreads], equal[kBlockThreads];
  const i64 each = ceil_div(choices, i64{kBlockThreads}), first = threadIdx.x * each, last = min(first + each, choices);
  for (i64 e = blockIdx.x; e < experts; e += gridDim.x) {
    i32 before = 0, mine = 0;
    for (i64 c = first; c < last; ++c) before += expert[c] < e, mine += expert[c] == e;
    __syncthreads();  // waits until the previous expert's counts have been read
    lesser[threadIdx.x] = before;
    equal[threadIdx.x] = mine;
    __syncthreads();
    i32 row = 0, beginning = 0;
    for (unsigned t = 0; t < kBlockThreads; ++t) {
      beginning += lesser[t];
      if (t < threadIdx.x) row += equal[t];
    }
    row += beginning;
    if (threadIdx.x == 0) begin[e] = beginning;
    if (threadIdx.x == 0 && e == experts - 1) begin[experts] = static_cast<i32>(choices);
    for (i64 c = first; c < last; ++c) {
      if (expert[c] != e) continue;
      row_of_choice[c] = row;
      choice_of_row[row++] = static_cast<i32>(c);
    }
  }
}

template <class T>
struct Rows {
  const T* from;
  T* to;
  const i32* index;
  const Wide<T>* weight;  // the weight of each choice; null if there are no weights
  i64 rows, columns, chosen;
  bool aligned;
};

template <class T>
Rows<T> rows_of(const Tensor& from, const Tensor& to, const Tensor& index, const Tensor& weights, i64 chosen) {
  const i64 columns = to.size(1);
  return {from.data<T>(),
          to.data<T>(),
          index.data<i32>(),
          data_or_null<Wide<T>>(weights),
          to.size(0),
          columns,
          chosen,
          rows_aligned<kPackOf<T>>(from.data<T>(), columns) && rows_aligned<kPackOf<T>>(to.data<T>(), columns)};
}

template <class T>
__global__ void gather(Rows<T> r) {
  constexpr int kCount = kPackOf<T>;
  for (i64 row = blockIdx.x; row < r.rows; row += gridDim.x) {
    const i32 choice = r.index[row];
    const T* from = r.from + choice / r.chosen * r.columns;
    for (i64 c = i64{threadIdx.x} * kCount; c < r.columns; c += i64{blockDim.x} * kCount) {
      auto pack = load_pack<kCount>(from + c, r.columns - c, r.aligned);
      if (r.weight) {
        for (int i = 0; i < kCount; ++i) pack.at[i] *= r.weight[choice];
      }
      store_pack(pack, r.to + row * r.columns + c, r.columns - c, r.aligned);
    }
  }
}

template <class T>
__global__ void sum(Rows<T> r) {
  constexpr int kCount = kPackOf<T>;
  for (i64 n = blockIdx.x; n < r.rows; n += gridDim.x) {
    for (i64 c = i64{threadIdx.x} * kCount; c < r.columns; c += i64{blockDim.x} * kCount) {
      Pack<Wide<T>, kCount> sums{};
      for (i64 k = n * r.chosen; k < (n + 1) * r.chosen; ++k) {
        const auto pack = load_pack<kCount>(r.from + r.index[k] * r.columns + c, r.columns - c, r.aligned);
        for (int i = 0; i < kCount; ++i) sums.at[i] += r.weight ? r.weight[k] * pack.at[i] : pack.at[i];
      }
      store_pack(sums, r.to + n * r.columns + c, r.columns - c, r.aligned);
    }
  }
}

template <class T>
__global__ void multiply_rows(const T* a, const T* b, const i32* row, i64 choices, i64 chosen, i64 columns, bool aligned, Wide<T>* to) {
  constexpr int kCount = kPackOf<T>;
  for (i64 k = WarpRows::first(); k < choices; k += WarpRows::step()) {
    Wide<T> sum = 0;
    for (i64 c = WarpRows::rank() * kCount; c < columns; c += WarpRows::kThreads * kCount) {
      const auto left = load_pack<kCount>(a + k / chosen * columns + c, columns - c, aligned);
      const auto right = load_pack<kCount>(b + row[k] * columns + c, columns - c, aligned);
      for (int i = 0; i < kCount; ++i) sum += left.at[i] * right.at[i];
    }
    sum = WarpRows::fold(sum, Plus());
    if (WarpRows::rank() == 0) to[k] = sum;
  }
}

}  // namespace

void sort_by_expert(const Tensor& experts, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice) {
  const i64 count = begins.elems() - 1;
  launch("sort_by_expert", sort_choices, blocks_for_tasks(count), dim3(kBlockThreads), experts.data<i32>(), experts.elems(), count,
         begins.data<i32>(), choice_of_row.data<i32>(), row_of_choice.data<i32>());
}

void gather_rows(const Tensor& from, const Tensor& choice_of_row, const Tensor& weights, const Tensor& to) {
  for_dtype("gather_rows", to.dtype(), [&]<class T>(T) {
    launch("gather_rows", gather<T>, blocks_for_tasks(to.size(0)), dim3(kBlockThreads),
           rows_of<T>(from, to, choice_of_row, weights, to.size(0) / from.size(0)));
  });
}

void sum_rows(const Tensor& from, const Tensor& row_of_choice, const Tensor& weights, const Tensor& to) {
  for_dtype("sum_rows", to.dtype(), [&]<class T>(T) {
    launch("sum_rows", sum<T>, blocks_for_tasks(to.size(0)), dim3(kBlockThreads),
           rows_of<T>(from, to, row_of_choice, weights, from.size(0) / to.size(0)));
  });
}

void row_products(const Tensor& a, const Tensor& b, const Tensor& row_of_choice, const Tensor& products) {
  for_dtype("row_products", a.dtype(), [&]<class T>(T) {
    const i64 choices = b.size(0), columns = b.size(1);
    const bool aligned = rows_aligned<kPackOf<T>>(a.data<T>(), columns) && rows_aligned<kPackOf<T>>(b.data<T>(), columns);
    launch("row_products", multiply_rows<T>, blocks_for_tasks(ceil_div(choices, i64{WarpRows::kRowsOfBlock})), dim3(kBlockThreads),
           a.data<T>(), b.data<T>(), row_of_choice.data<i32>(), choices, choices / a.size(0), columns, aligned, products.data<Wide<T>>());
  });
}

}  // namespace spillway::kernels::cuda

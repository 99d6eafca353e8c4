#include "kernels/dispatch.h"
#include "kernels/experts/expert_rows.h"
#include "kernels/experts/warp_sums_cuda.h"
#include "kernels/packs_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// Sorting takes three kernels: count_choices() counts, begin_rows() turns the counts into first rows, and place_choices() gives each choice
// its row. counts[S, E] belongs to the S stretches of the list of choices. A thread block of one warp handles a stretch and has the
// counters of up to kCounters experts in shared memory; if there are more experts, it goes over the stretch several times. The sort is
// stable: rows of one expert ascend with the choices, because stretches, groups of 32 choices and lanes all ascend.
struct Choices {
  const i32* expert;
  i64 choices, experts;
  ChoiceStretches stretches;
  i32* counts;  // in the end, the rows of an expert that come before those of the stretch
};
constexpr int kCounters = 1024;

// Calls f(first, n, stretch) for each stretch of the thread block and each group of n experts from expert `first` on.
template <class F>
__device__ void for_counters(const Choices& x, F f) {
  for (i64 stretch = blockIdx.x; stretch < x.stretches.count; stretch += gridDim.x) {
    for (i64 first = 0; first < x.experts; first += kCounters) {
      f(first, static_cast<int>(min(i64{kCounters}, x.experts - first)), stretch);
      __syncwarp();
    }
  }
}

// Calls f(c, e, same) for the choices of a stretch, 32 at a time. Choice c, of expert first_expert + e, is the calling lane's; e is -1 if
// the expert is not one of the kCounters experts from first_expert on, or if c lies beyond the end of the stretch. `same` has a bit for
// each lane with the same e. Between two calls all lanes of the warp see what the lanes have written.
template <class F>
__device__ void for_choices(const Choices& x, i64 stretch, i64 first_expert, F f) {
  const i64 first = stretch * x.stretches.each, end = min(first + x.stretches.each, x.choices);
  for (i64 begin = first; begin < end; begin += kWarpThreads) {
    __syncwarp();
    const i64 c = begin + WarpRows::rank(), of_group = c < end ? x.expert[c] - first_expert : -1;
    const i32 e = of_group >= 0 && of_group < kCounters ? static_cast<i32>(of_group) : -1;
    f(c, e, __match_any_sync(~0u, e));
  }
  __syncwarp();
}
__device__ u32 lanes_before() { return (1u << WarpRows::rank()) - 1; }

__global__ void count_choices(Choices x) {
  __shared__ i32 rows[kCounters];
  for_counters(x, [&](i64 first, int n, i64 stretch) {
    for (int e = WarpRows::rank(); e < n; e += kWarpThreads) rows[e] = 0;
    for_choices(x, stretch, first, [&](i64, i32 e, u32 same) {
      if (e >= 0 && (same & lanes_before()) == 0) rows[e] += __popc(same);
    });
    for (int e = WarpRows::rank(); e < n; e += kWarpThreads) x.counts[stretch * x.experts + first + e] = rows[e];
  });
}

// Replaces each of the n numbers by the sum of those up to it.
__device__ void sum_up(i32* numbers, i64 n) {
  i32 total = 0;
  for (i64 first = 0; first < n; first += kWarpThreads) {
    const i64 i = first + WarpRows::rank();
    const i32 sum = sum_up_to_lane(i < n ? numbers[i] : 0);
    if (i < n) numbers[i] = total + sum;
    total += __shfl_sync(~0u, sum, kWarpThreads - 1);
  }
}

constexpr int kBeginWarps = 32;

// Each warp sums the counts of 32 experts, one in each lane, over its part of the stretches, and then adds the sums of the parts before.
__global__ void begin_rows(Choices x, i32* begin) {
  __shared__ i32 of_parts[kBeginWarps][kWarpThreads];
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads, lane = WarpRows::rank();
  const i64 stretches = x.stretches.count, part = ceil_div(stretches, i64{kBeginWarps}), first = min(warp * part, stretches),
            end = min(first + part, stretches);
  for (i64 group = 0; group < x.experts; group += kWarpThreads) {
    const i64 e = group + lane;
    i32 rows = 0;
    for (i64 s = first; e < x.experts && s < end; ++s) rows += x.counts[s * x.experts + e];
    of_parts[warp][lane] = rows;
    __syncthreads();
    i32 before = 0;
    for (int w = 0; w < warp; ++w) before += of_parts[w][lane];
    if (e < x.experts && warp == kBeginWarps - 1) begin[e + 1] = before + rows;
    for (i64 s = first; e < x.experts && s < end; ++s) {
      i32& count = x.counts[s * x.experts + e];
      const i32 here = count;
      count = before, before += here;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) begin[0] = 0;
  if (warp == 0) sum_up(begin + 1, x.experts);
}

__global__ void place_choices(Choices x, const i32* begin, i32* choice_of_row, i32* row_of_choice) {
  __shared__ i32 next[kCounters];  // the next row of each expert
  for_counters(x, [&](i64 first, int n, i64 stretch) {
    for (int e = WarpRows::rank(); e < n; e += kWarpThreads) next[e] = begin[first + e] + x.counts[stretch * x.experts + first + e];
    for_choices(x, stretch, first, [&](i64 c, i32 e, u32 same) {
      const i32 before = __popc(same & lanes_before()), row = e >= 0 ? next[e] + before : 0;
      __syncwarp();  // waits until all lanes have read the counters
      if (e < 0) return;
      if (before == 0) next[e] += __popc(same);
      row_of_choice[c] = row;
      choice_of_row[row] = static_cast<i32>(c);
    });
  });
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

void sort_by_expert(const Tensor& experts, const Tensor& begins, const Tensor& choice_of_row, const Tensor& row_of_choice,
                    const Tensor& workspace) {
  const Choices x{experts.data<i32>(), experts.elems(), begins.elems() - 1, choice_stretches(experts.elems()),
                  reinterpret_cast<i32*>(workspace.raw())};
  const dim3 blocks = blocks_for_tasks(x.stretches.count), warp(kWarpThreads);
  launch("count_choices", count_choices, blocks, warp, x);
  launch("begin_rows", begin_rows, dim3(1), dim3(kBeginWarps * kWarpThreads), x, begins.data<i32>());
  launch("place_choices", place_choices, blocks, warp, x, begins.data<i32>(), choice_of_row.data<i32>(), row_of_choice.data<i32>());
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

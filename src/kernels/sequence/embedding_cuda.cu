#include "kernels/sequence/embedding.h"

#include <limits>

#include "kernels/dispatch.h"
#include "kernels/elements_cuda.h"
#include "kernels/index_report_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kThreads = 128;   // the number of threads in a thread block; each computes different columns of a row
constexpr int kTableRows = 32;  // the number of rows of the table that a thread block sums at a time
constexpr int kChunk = 1024;    // the number of tokens that a thread block searches at a time
constexpr int kAbreast = 8;     // the number of tokens whose rows a thread loads at once

template <int kCount, class T>
__global__ void gather_rows(const i32* id, i64 tokens, const T* table, i64 vocabulary, i64 columns, T* out, IndexReport report) {
  for (i64 n = blockIdx.x; n < tokens; n += gridDim.x) {
    const i64 row = id[n];
    const bool inside = row >= 0 && row < vocabulary;
    if (!inside && threadIdx.x == 0) report(row, vocabulary);
    for (i64 c = i64{threadIdx.x} * kCount; c < columns; c += i64{kThreads} * kCount) {
      Pack<T, kCount> pack;
      if (inside) {
        pack = load_pack<kCount>(table + row * columns + c);
      } else {
        for (int i = 0; i < kCount; ++i) pack.at[i] = narrow<T>(std::numeric_limits<Wide<T>>::quiet_NaN());
      }
      store_pack(pack, out + n * columns + c);
    }
  }
}

// Finds the tokens of a chunk whose ids are rows of this thread block, sorts them by row and then by token, and returns how many there are.
// Each token gets the key row * kChunk + token. The keys are collected in any order; then each key is stored at the index that equals the
// number of smaller keys.
__device__ int sort_tokens(const i32* id, int tokens, i64 first_row, i64 rows, int* sorted) {
  __shared__ int found, keys[kChunk];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) found = 0;
  __syncthreads();
  for (int n = thread; n < tokens; n += kThreads) {
    const i64 row = id[n] - first_row;
    if (row >= 0 && row < rows) keys[atomicAdd(&found, 1)] = static_cast<int>(row) * kChunk + n;
  }
  __syncthreads();
  const int count = found;
  for (int k = thread; k < count; k += kThreads) {
    int place = 0;
    for (int other = 0; other < count; ++other) place += keys[other] < keys[k];
    sorted[place] = keys[k];
  }
  __syncthreads();
  return count;
}

// The number of sums that one access loads or stores: as many as kCount and 16 bytes
// allow. load_sums() and store_sums() access kCount sums in steps of this number.
template <int kCount, class Sum>
constexpr int kOfAccess = std::min(kCount, static_cast<int>(16 / sizeof(Sum)));
template <int kCount, class Sum>
__device__ void load_sums(const Sum* from, Sum (&sums)[kCount]) {
  for (int i = 0; i < kCount; i += kOfAccess<kCount, Sum>) {
    const auto pack = load_pack<kOfAccess<kCount, Sum>>(from + i);
    for (int j = 0; j < kOfAccess<kCount, Sum>; ++j) sums[i + j] = pack.at[j];
  }
}
template <int kCount, class Sum>
__device__ void store_sums(const Sum (&sums)[kCount], Sum* to) {
  for (int i = 0; i < kCount; i += kOfAccess<kCount, Sum>) {
    Pack<Sum, kOfAccess<kCount, Sum>> pack;
    for (int j = 0; j < kOfAccess<kCount, Sum>; ++j) pack.at[j] = sums[i + j];
    store_pack(pack, to + i);
  }
}

// Adds the rows of kRows tokens to the sums. All rows are loaded before the first is added, so that the loads overlap.
template <int kRows, class T, class Sum, int kCount>
__device__ void add_rows(const T* from, i64 columns, const int* tokens, Sum (&sums)[kCount]) {
  Pack<T, kCount> packs[kRows];
  for (int k = 0; k < kRows; ++k) packs[k] = load_pack<kCount>(from + tokens[k] % kChunk * columns);
  for (int k = 0; k < kRows; ++k) {
    for (int i = 0; i < kCount; ++i) sums[i] += widen(packs[k].at[i]);
  }
}

// Computes the gradient of the table. A thread block computes kTableRows rows of the table and
// kThreads * kCount of their columns, and goes through all tokens in chunks. Each sum starts as the
// zero in memory, and is read and written once for each chunk of tokens that contributes to it.
template <int kCount, class T>
__global__ void __launch_bounds__(kThreads)
    sum_rows(const i32* id, i64 tokens, const T* dout, i64 vocabulary, i64 columns, Wide<T>* dtable) {
  using Sum = Wide<T>;
  __shared__ int sorted[kChunk];
  const i64 tiles = ceil_div(columns, i64{kThreads} * kCount), tasks = ceil_div(vocabulary, i64{kTableRows}) * tiles;
  for (i64 task = blockIdx.x; task < tasks; task += gridDim.x) {
    const i64 first_row = task / tiles * kTableRows, rows = min(i64{kTableRows}, vocabulary - first_row),
              c = (task % tiles * kThreads + threadIdx.x) * kCount;
    const bool mine = c < columns;
    Sum* const to = dtable + first_row * columns + c;
    for (i64 chunk = 0; chunk < tokens; chunk += kChunk) {
      const int count = sort_tokens(id + chunk, static_cast<int>(min(i64{kChunk}, tokens - chunk)), first_row, rows, sorted);
      const T* const from = dout + chunk * columns + c;
      for (int k = 0; mine && k < count;) {
        const int row = sorted[k] / kChunk;
        Sum sum[kCount];
        load_sums(to + row * columns, sum);
        int end = k + 1;
        while (end < count && sorted[end] / kChunk == row) ++end;
        for (; k + kAbreast <= end; k += kAbreast) add_rows<kAbreast>(from, columns, sorted + k, sum);
        for (; k < end; ++k) add_rows<1>(from, columns, sorted + k, sum);
        store_sums(sum, to + row * columns);
      }
      __syncthreads();  // waits until all threads have read `sorted`
    }
  }
}

}  // namespace

void embedding(const Tensor& ids, const Tensor& table, const Tensor& out) {
  if (out.elems() == 0) return;
  for_dtype("embedding", table.dtype(), [&]<class T>(T) {
    constexpr int kCount = 16 / sizeof(T);
    const T* from = table.data<T>();
    T* to = out.data<T>();
    const i64 columns = table.size(1), tokens = ids.elems();
    const bool packs = columns % kCount == 0 && is_aligned(from, 16) && is_aligned(to, 16);
    launch("embedding", packs ? gather_rows<kCount, T> : gather_rows<1, T>, blocks_for_tasks(tokens), dim3(kThreads), ids.data<i32>(),
           tokens, from, table.size(0), columns, to, IndexReport("embedding"));
  });
}

void embedding_gradient(const Tensor& ids, const Tensor& dout, i64 padding_row, const Tensor& dtable) {
  if (dtable.elems() == 0) return;
  cuda_check(cudaMemsetAsync(dtable.raw(), 0, static_cast<size_t>(dtable.bytes()), Stream::current().queue), "embedding_gradient");
  for_dtype("embedding_gradient", dout.dtype(), [&]<class T>(T) {
    constexpr int kCount = 16 / sizeof(T);
    const T* from = dout.data<T>();
    Wide<T>* to = dtable.data<Wide<T>>();
    const i64 columns = dtable.size(1), rows = ceil_div(dtable.size(0), kTableRows);
    const bool packs = columns % kCount == 0 && is_aligned(from, 16) && is_aligned(to, 16);
    const i64 tiles = ceil_div(columns, kThreads * (packs ? kCount : 1));
    launch("embedding_gradient", packs ? sum_rows<kCount, T> : sum_rows<1, T>, blocks_for_tasks(rows * tiles), dim3(kThreads),
           ids.data<i32>(), ids.elems(), from, dtable.size(0), columns, to);
  });
  if (padding_row < 0) return;
  const i64 row_bytes = dtable.size(1) * size_of(dtable.dtype());
  cuda_check(cudaMemsetAsync(dtable.raw() + padding_row * row_bytes, 0, static_cast<size_t>(row_bytes), Stream::current().queue),
             "embedding_gradient");
}

}  // namespace spillway::kernels::cuda

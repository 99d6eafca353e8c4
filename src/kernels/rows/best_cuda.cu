#include "kernels/rows/best.h"

#include <bit>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/lanes_cuda.h"

// One or a few of the best elements of a short lane are found one after the other by a warp. Otherwise thread blocks find the best of tiles
// of a lane and write them in order, as runs. The runs are then the lane of the next such pass, if that leaves few of them, or pairs of
// runs are merged. An element's rank says where it belongs, so the result does not depend on which thread comes first.

namespace spillway::kernels::cuda {
namespace {

constexpr int kRounds = 8;         // up to this number of elements are found one after the other; more are sorted
constexpr int kTileThreads = 256;  // the number of threads of a thread block
constexpr int kTile = 2048;        // the number of elements that a thread block looks at together

// Combines two elements, each with its index: returns the one that ranks first.
struct Before {
  Best which;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return comes_before(which, a, 0, b, 1) ? a : b;
  }
};
struct Lower {
  template <class N>
  __device__ N operator()(N a, N b) const {
    return a < b ? a : b;
  }
};

// Finds the k best elements of a lane (a line of elements along the axis), one after the other: the next best is the best of the elements
// that rank after the previous one.
template <class T>
struct BestOfLane {
  using W = Wide<T>;
  Best which;
  const T* x;
  i64 k;
  T* values;
  i32* index;

  template <class Rows>
  __device__ void lane(const Axis& axis, i64 lane, i64 first) const {
    const W last = which == Best::largest ? -std::numeric_limits<W>::infinity() : std::numeric_limits<W>::infinity();
    const i64 out = first_of_lane(Axis{axis.outer, k, axis.inner}, lane);
    W before{};
    i32 before_at = -1;  // the index of the element that was found last; -1 if none has been found yet
    for (i64 i = 0; i < k; ++i) {
      W mine = last;
      i32 mine_at = std::numeric_limits<i32>::max();
      for (i64 j = Rows::rank(); j < axis.n; j += Rows::kThreads) {
        const W value = widen(x[first + j * axis.inner]);
        if (before_at >= 0 && !comes_before(which, before, before_at, value, j)) continue;
        if (comes_before(which, value, j, mine, mine_at)) mine = value, mine_at = static_cast<i32>(j);
      }
      const W top = Rows::fold(mine, Before{which});
      const bool is_top = mine == top || (mine != mine && top != top);
      before_at = Rows::fold(is_top ? mine_at : std::numeric_limits<i32>::max(), Lower());
      before = top;
      if (Rows::rank() != 0) continue;
      index[out + i * axis.inner] = before_at;
      if (values) values[out + i * axis.inner] = x[first + before_at * axis.inner];
    }
  }
};

// An element's rank in its lane: the best element has the smallest, and no two elements of a lane have the same.
template <class Bits>
struct Rank {
  Bits order;  // the rank of the value
  u32 place;   // the index along the axis

  __device__ static Rank last() { return {std::numeric_limits<Bits>::max(), std::numeric_limits<u32>::max()}; }
  __device__ bool operator<(const Rank& other) const { return order != other.order ? order < other.order : place < other.place; }
};
template <class T>
using RankOf = Rank<std::conditional_t<sizeof(Wide<T>) == 4, u32, u64>>;

// The elements of a tensor's lanes.
template <class T>
struct OfTensor {
  Best which;
  Axis axis;
  const T* x;

  __device__ RankOf<T> operator()(i64 lane, i64 i) const {
    using Bits = decltype(RankOf<T>::order);
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
    const Wide<T> value = widen(x[first_of_lane(axis, lane) + i * axis.inner]);
    const auto place = static_cast<u32>(i);
    if (value != value) return {0, place};                                   // NaN ranks first, before both infinities
    const auto bits = std::bit_cast<Bits>(value == 0 ? Wide<T>{0} : value);  // -0 equals 0
    const Bits rising = (bits & kSign) != 0 ? ~bits : bits | kSign;          // in the order of the values
    return {which == Best::largest ? ~rising : rising, place};
  }
};

// The runs of a lane, one after the other: `length` elements each, the last one maybe fewer, and `total` elements altogether.
template <class R>
struct Runs {
  R* at;
  i64 length, total;

  __device__ R operator()(i64 lane, i64 i) const { return at[lane * total + i]; }
};

// Returns the smallest power of two that is not below n.
__device__ int power_of_two_from(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// Sorts the first `size` elements of a tile, a power of two, by a bitonic network: K. E. Batcher, "Sorting networks and their
// applications", 1968.
template <class R>
__device__ void sort_tile(R* tile, int size) {
  for (int whole = 2; whole <= size; whole *= 2) {
    for (int step = whole / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kTileThreads) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const bool rising = (low & whole) == 0;
        const R a = tile[low], b = tile[high];
        if ((b < a) == rising) tile[low] = b, tile[high] = a;
      }
      __syncthreads();
    }
  }
}

// Writes the best elements of each tile of a lane of n elements as a run.
template <class R, class From>
__global__ void __launch_bounds__(kTileThreads) best_of_tiles(From from, i64 lanes, i64 n, Runs<R> to) {
  using Rows = BlockRows<kTileThreads>;
  __shared__ R tile[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const i64 tiles = ceil_div(n, i64{kTile});
  for (i64 task = blockIdx.x; task < lanes * tiles; task += gridDim.x) {
    const i64 lane = task / tiles, number = task % tiles, begin = number * kTile;
    const int count = static_cast<int>(min(i64{kTile}, n - begin)), wanted = static_cast<int>(min(to.length, i64{count}));
    const int size = to.length <= kRounds ? count : power_of_two_from(count);
    R* const out = to.at + lane * to.total + number * to.length;
    for (int i = thread; i < size; i += kTileThreads) tile[i] = i < count ? from(lane, begin + i) : R::last();
    __syncthreads();
    if (to.length <= kRounds) {
      R found{};
      for (int round = 0; round < wanted; ++round) {
        R mine = R::last();
        for (int i = thread; i < count; i += kTileThreads) {
          if ((round == 0 || found < tile[i]) && tile[i] < mine) mine = tile[i];
        }
        found.order = Rows::fold(mine.order, Lower());
        found.place = Rows::fold(mine.order == found.order ? mine.place : R::last().place, Lower());
        if (thread == 0) out[round] = found;
      }
    } else {
      sort_tile(tile, size);
      for (int i = thread; i < wanted; i += kTileThreads) out[i] = tile[i];
    }
    __syncthreads();  // waits until all threads have read the tile
  }
}

// Merges pairs of runs. An element's place in the merged run is its place in its own run and the number of elements of the other that rank
// before it.
template <class R>
struct MergeRuns {
  Runs<R> from, to;
  __device__ void operator()(i64 at) const {
    const i64 lane = at / from.total, i = at % from.total, run = i / from.length;
    const R *const all = from.at + lane * from.total, mine = all[i];
    const i64 other = min((run ^ 1) * from.length, from.total);
    i64 low = other, high = min(other + from.length, from.total);
    while (low < high) {
      const i64 middle = (low + high) / 2;
      if (all[middle] < mine) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const i64 place = i - run * from.length + low - other;
    if (place < to.length) to.at[lane * to.total + run / 2 * to.length + place] = mine;
  }
};

// Writes the elements of the only run of each lane.
template <class T>
struct WriteRun {
  Runs<RankOf<T>> from;
  Axis axis;
  const T* x;
  T* values;
  i32* index;
  __device__ void operator()(i64 at) const {
    const i64 i = at % axis.inner, row = at / axis.inner, lane = row / from.total * axis.inner + i;
    const i64 place = from(lane, row % from.total).place;
    index[at] = static_cast<i32>(place);
    if (values) values[at] = x[first_of_lane(axis, lane) + place * axis.inner];
  }
};

bool goes_by_warps(const Axis& axis, i64 k) { return axis.n <= kWarpLane && k <= kRounds; }

// Returns how many elements are left of a lane of n elements if at most `length` are of each tile.
i64 left_of_tiles(i64 n, i64 length) {
  const i64 tiles = ceil_div(n, i64{kTile});
  return (tiles - 1) * length + std::min(length, n - (tiles - 1) * kTile);
}

template <class T>
void best_by_tiles(Best which, const Tensor& x, const Axis& axis, i64 k, const Tensor& values, const Tensor& index,
                   const Tensor& workspace) {
  using R = RankOf<T>;
  const i64 lanes = axis.lanes(), first = std::min(k, i64{kTile});
  Runs<R> runs{reinterpret_cast<R*>(workspace.raw()), first, left_of_tiles(axis.n, first)};
  R* other = runs.at + lanes * runs.total;
  const auto tiles_of = [&](auto from, i64 n, const Runs<R>& to) {
    launch("best", best_of_tiles<R, decltype(from)>, blocks_for_tasks(lanes * ceil_div(n, i64{kTile})), dim3(kTileThreads), from, lanes, n,
           to);
  };
  tiles_of(OfTensor<T>{which, axis, x.data<T>()}, axis.n, runs);
  while (runs.total > runs.length) {
    Runs<R> next{other, runs.length, 0};
    if (4 * runs.length <= kTile) {
      next.total = left_of_tiles(runs.total, next.length);
      tiles_of(runs, runs.total, next);
    } else {
      next.length = std::min(k, 2 * runs.length);
      const i64 pairs = runs.total / (2 * runs.length), rest = runs.total - pairs * 2 * runs.length;
      next.total = pairs * next.length + std::min(rest, next.length);
      for_each_on_gpu("best", lanes * runs.total, MergeRuns<R>{runs, next});
    }
    other = runs.at, runs = next;
  }
  for_each_on_gpu("best", lanes * k, WriteRun<T>{runs, axis, x.data<T>(), data_or_null<T>(values), index.data<i32>()});
}

}  // namespace

i64 best_workspace_bytes(const Axis& axis, i64 k, DType dtype) {
  if (goes_by_warps(axis, k)) return 0;
  const i64 rank = size_of(wide_dtype(dtype)) == 4 ? sizeof(RankOf<float>) : sizeof(RankOf<double>);
  return 2 * axis.lanes() * left_of_tiles(axis.n, std::min(k, i64{kTile})) * rank;
}

void best(Best which, const Tensor& x, const Axis& axis, i64 k, const Tensor& values, const Tensor& index, const Tensor& workspace) {
  for_dtype("best", x.dtype(), [&]<class T>(T) {
    if (!goes_by_warps(axis, k)) return best_by_tiles<T>(which, x, axis, k, values, index, workspace);
    for_lanes_on_gpu("best", axis, BestOfLane<T>{which, x.data<T>(), k, data_or_null<T>(values), index.data<i32>()});
  });
}

}  // namespace spillway::kernels::cuda

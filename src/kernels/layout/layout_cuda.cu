#include "kernels/layout/layout.h"

#include "kernels/dispatch.h"
#include "kernels/views_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;

// A matrix that a copy transposes: its rows are contiguous in `from`, and its columns are contiguous in `to`. `others` are the remaining
// axes; there is one such matrix for each of their elements.
struct Turned {
  i64 rows, columns;
  i64 from_row, to_column;  // the distance in elements between rows of `from`, and between columns of `to`
  Axes<2> others;           // the remaining axes; view 0 is `to`, view 1 is `from`
};

// Transposes a matrix tile by tile. A thread block passes a tile through shared memory, so that it accesses both views in memory order.
template <class T>
__global__ void turn_tiles(i64 tiles, Turned m, const T* from, T* to) {
  __shared__ T tile[kTile][kTile + 1];
  const i64 tiles_down = ceil_div(m.rows, i64{kTile}), tiles_across = ceil_div(m.columns, i64{kTile});
  const i64 x = threadIdx.x;
  for (i64 t = blockIdx.x; t < tiles; t += gridDim.x) {
    const i64 first_row = t % tiles_down * kTile, first_column = t / tiles_down % tiles_across * kTile;
    i64 at[2];
    find(m.others, static_cast<u64>(t / tiles_down / tiles_across), at);
    for (i64 y = threadIdx.y; y < kTile; y += kTileRows) {
      const i64 row = first_row + y, column = first_column + x;
      if (row < m.rows && column < m.columns) tile[y][x] = from[at[1] + row * m.from_row + column];
    }
    __syncthreads();
    for (i64 y = threadIdx.y; y < kTile; y += kTileRows) {
      const i64 row = first_row + x, column = first_column + y;
      if (row < m.rows && column < m.columns) to[at[0] + column * m.to_column + row] = tile[x][y];
    }
    __syncthreads();
  }
}

// If `from` is contiguous along one axis and `to` along another, and both axes are long enough for tiles, returns the axis along which
// `from` is contiguous. Otherwise returns -1.
int turned_axis(const Axes<2>& axes) {
  const int last = axes.rank - 1;
  if (axes.rank < 2 || axes.stride[0][last] != 1 || axes.stride[1][last] == 1 || axes.extent[last] < kTileRows) return -1;
  for (int i = 0; i < last; ++i) {
    if (axes.stride[1][i] == 1 && axes.extent[i] >= kTileRows) return i;
  }
  return -1;
}

template <class T>
void copy_turned(const Axes<2>& axes, int turned, const T* from, T* to) {
  const int last = axes.rank - 1;
  Turned m{axes.extent[last], axes.extent[turned], axes.stride[1][last], axes.stride[0][turned], {}};
  for (int i = 0; i < last; ++i) {
    if (i == turned) continue;
    m.others.extent[m.others.rank] = axes.extent[i];
    for (int v = 0; v < 2; ++v) m.others.stride[v][m.others.rank] = axes.stride[v][i];
    ++m.others.rank;
  }
  const i64 tiles = ceil_div(m.rows, kTile) * ceil_div(m.columns, kTile) * m.others.elems();
  launch("copy_view", turn_tiles<T>, blocks_for(tiles * kBlockThreads), dim3(kTile, kTileRows), tiles, m, from, to);
}

template <class T>
__global__ void keep_triangle(i64 n, i64 rows, i64 columns, bool lower, i64 diagonal, const T* x, T* y) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 at = i64{blockIdx.x} * blockDim.x + threadIdx.x; at < n; at += step) {
    const i64 column = at % columns, edge = at / columns % rows + diagonal;
    y[at] = (lower ? column <= edge : column >= edge) ? x[at] : T(0);
  }
}

}  // namespace

void copy_view(const Tensor& from, const Tensor& to) {
  const Axes<2> axes = merged_axes(to.shape(), {strides_of(to), strides_of(from)});
  const int turned = turned_axis(axes);
  for_width(to.dtype(), [&]<class Bits>(Bits) {
    const auto* source = reinterpret_cast<const Bits*>(from.raw());
    auto* target = reinterpret_cast<Bits*>(to.raw());
    if (turned >= 0) return copy_turned(axes, turned, source, target);
    map_views_on_gpu("copy_view", axes, Same(), target, source);
  });
}

void triangle(const Tensor& x, bool lower, i64 diagonal, const Tensor& y) {
  for_width(x.dtype(), [&]<class T>(T) {
    launch("triangle", keep_triangle<T>, blocks_for(x.elems()), dim3(kBlockThreads), x.elems(), x.size(-2), x.size(-1), lower, diagonal,
           reinterpret_cast<const T*>(x.raw()), reinterpret_cast<T*>(y.raw()));
  });
}

void fill_zero(const Tensor& to) {
  cuda_check(cudaMemsetAsync(to.raw(), 0, static_cast<size_t>(to.bytes()), Stream::current().queue), "fill_zero");
}

}  // namespace spillway::kernels::cuda

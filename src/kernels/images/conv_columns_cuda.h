// Gathers the matrices of conv_columns.h on a GPU, one strip (range of columns) at a time, and makes views of a convolution's workspace.
// Only conv*_cuda.cu include this header.
#pragma once
#include "kernels/elements_cuda.h"
#include "kernels/images/conv_strips.h"
#include "tensor/tensor.h"

namespace spillway::kernels::cuda {

/// While a ConvolutionScope lives, the matrix products of a convolution use the current
/// stream's TF32 setting for convolutions rather than the setting for products.
class ConvolutionScope {
 public:
  ConvolutionScope() { stream_.tf32.matmul = stream_.tf32.conv; }

 private:
  Stream stream_ = Stream::current();
  const StreamScope scope_{stream_};
};

/// Returns a matrix [rows, columns] at byte `offset` of the workspace; its rows are `stride` elements apart.
inline Tensor matrix_in(const Tensor& workspace, i64 offset, i64 rows, i64 columns, i64 stride, DType dtype) {
  return workspace.slice(0, offset, offset + rows * stride * size_of(dtype)).reinterpret({rows, stride}, dtype).slice(1, 0, columns);
}

/// Distributes a matrix of `rows` x `columns` over threads. The rows are divided into shares: share s consists of the rows s, s + shares,
/// and so on. Every thread computes one column of one share. There are enough shares to keep a large GPU busy, but each has at least
/// `least` rows.
struct Shares {
  i64 columns, shares;
  Shares(i64 columns_, i64 rows, i64 least) : columns(columns_) {
    constexpr i64 kEnough = 1 << 20;
    shares = std::clamp<i64>(ceil_div(kEnough, columns), 1, ceil_div(rows, least));
  }
  dim3 blocks() const { return blocks_for(columns * shares); }

  // Calls f(column, share) for each pair that belongs to this thread.
  template <class F>
  __device__ void for_each(F f) const {
    const i64 step = i64{gridDim.x} * blockDim.x;
    for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < columns * shares; i += step) f(i % columns, i / columns);
  }
};

// A kernel in which each thread writes packs of kCount adjacent columns for its share of the
// channels. Columns past `number` repeat the last column; the rows of `to` are long enough for them.
template <class T, int kCount>
__global__ void gather_columns(Shares packs, Columns c, const T* source, i64 begin, i64 number, T* to, i64 to_stride) {
  const i64 plane = c.h.source * c.w.source;
  packs.for_each([&](i64 p, i64 share) {
    const T* image[kCount];
    i64 row[kCount], column[kCount];
    for (int i = 0; i < kCount; ++i) {
      const i64 j = begin + min(p * kCount + i, number - 1), line = j / c.w.positions;
      image[i] = source + line / c.h.positions * c.image_stride;
      row[i] = line % c.h.positions * c.h.step;
      column[i] = j % c.w.positions * c.w.step;
    }
    for (i64 channel = share; channel < c.channels; channel += packs.shares) {
      T* out = to + channel * c.taps() * to_stride + p * kCount;
      for (i64 h = 0; h < c.h.count; ++h) {
        const i64 h_offset = c.h.offset[static_cast<size_t>(h)];
        for (i64 w = 0; w < c.w.count; ++w, out += to_stride) {
          const i64 w_offset = c.w.offset[static_cast<size_t>(w)];
          Pack<T, kCount> some;
          for (int i = 0; i < kCount; ++i) {
            const i64 y = row[i] + h_offset, x = column[i] + w_offset;
            const bool inside = y >= 0 && y < c.h.source && x >= 0 && x < c.w.source;
            some.at[i] = inside ? image[i][channel * plane + y * c.w.source + x] : T{};
          }
          store_pack(some, out);
        }
      }
    }
  });
}

/// Gathers the columns [begin, begin + number) into to[K, number], whose rows are `to_stride` elements apart. `source` points to channel 0
/// of the group in image 0.
template <class T>
void gather_strip(const Columns& columns, const T* source, i64 begin, i64 number, T* to, i64 to_stride) {
  // columns that are stored at once; loads may be unaligned, so elements are loaded one by one
  constexpr int kCount = static_cast<int>(8 / sizeof(T));
  constexpr i64 kLeast = 8;
  if (columns.k() == 0) return;
  const Shares packs(ceil_div(number, kCount), columns.channels, ceil_div(kLeast, columns.taps()));
  launch("conv2d", gather_columns<T, kCount>, packs.blocks(), dim3(kBlockThreads), packs, columns, source, begin, number, to, to_stride);
}

}  // namespace spillway::kernels::cuda

#include <algorithm>
#include <optional>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/images/conv.h"
#include "kernels/images/conv_flops.h"
#include "kernels/images/conv_strips.h"
#include "kernels/images/conv_tile.h"
#include "kernels/images/conv_winograd.h"
#include "kernels/products/gemm_in_place.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace {

using gemm::kDepth;
using gemm::kStrip;
using gemm::packed_depth;
using gemm::PanelOf;
using gemm::Side;

// Returns how many elements the packed weights of one group take. Weights
// are packed in whole strips of rows, one chunk of k after the other.
template <class P>
i64 packed_elems_of(i64 rows, i64 k) {
  return round_up(rows, kStrip) * packed_depth<P>(k);
}
// Returns the bytes of a convolution's workspace: the packed weights, followed by the offsets of the taps in a tile.
template <class T>
i64 workspace_bytes_of(const Columns& columns, i64 groups, i64 rows) {
  if (std::is_same_v<T, float> && takes_winograd(columns, rows)) {
    return groups * winograd_elems(columns.channels, rows) * static_cast<i64>(sizeof(float));
  }
  const i64 k = columns.k();
  return round_up(groups * packed_elems_of<PanelOf<T>>(rows, k) * static_cast<i64>(sizeof(PanelOf<T>)), 64) +
         k * static_cast<i64>(sizeof(i32));
}

// Gathering a matrix column costs as much as multiplying the column by this many rows of weights (measured). Reading
// columns from tiles saves the gathering, but then the unused positions between the rows of a tile are multiplied too.
constexpr i64 kGatheringRows = 16;
constexpr i64 kTasks = 8;  // the fewest tasks if there is enough work, so that several threads are busy

// Returns how many grid rows a tile has, or 0 if columns should be gathered instead. The choice depends on shape and dtype alone; reading
// tiles in place and gathering columns give bitwise equal results.
template <class P>
i64 tile_rows(const Columns& columns, i64 groups, i64 rows) {
  // tiles cannot be used for pairs of bf16, because the two k of a pair are not adjacent in a tile
  if (sizeof(P) == 2 || columns.k() == 0) return 0;
  constexpr i64 most = kTileBytes / static_cast<i64>(sizeof(P));
  const TileShape row(columns, columns.channels, 1), two(columns, columns.channels, 2);
  if (row.elems() > most) return 0;
  const i64 fitting = 1 + (std::max(most * 2 / 3, row.elems()) - row.elems()) / (two.elems() - row.elems());
  const i64 pieces = ceil_div(columns.h.positions, std::min(fitting, ceil_div(columns.h.positions * columns.images * groups, kTasks)));
  const i64 number = ceil_div(columns.h.positions, pieces), panel_rows = round_up(rows, 8);
  const i64 multiplied = pieces * round_up(row.positions_in(number), 16), used = columns.h.positions * columns.w.positions;
  return multiplied * panel_rows <= used * (panel_rows + kGatheringRows) ? number : 0;
}

// Computes out[row, j] = weights[row, k] columns[k, j] (+ bias[row]) for every group. This gives y of a convolution, or x's gradient from
// y's gradient.
template <class T>
struct Product {
  using P = PanelOf<T>;
  Columns columns;
  Weights<T> weights;
  const T* source;
  const T* bias;
  T* out;
  Place place;
  i64 groups, rows;                 // the number of groups, and of output channels of one group
  i64 source_group, weights_group;  // the distances between groups in the source, and in the weights
  P* packed;                        // the workspace, which begins with the packed weights

  // Returns how many rows one task computes. The number is small enough that there are tasks for several
  // threads even if there are few columns, and at most kMaxRows, for which a task has memory for sums.
  static constexpr i64 kMaxRows = 4 * kStrip;
  i64 task_rows(i64 pieces) const {
    return kStrip * std::clamp<i64>(ceil_div(rows, kStrip) * pieces * groups / kTasks, 1, kMaxRows / kStrip);
  }

  // Returns where the packed weights of chunk [at, at + kDepth) begin, for the rows from `row` on. `row` must be a multiple of kStrip.
  P* packed_at(i64 group, i64 at, i64 row) const {
    const i64 chunk = std::min(kDepth<P>, columns.k() - at);
    return packed + group * packed_elems_of<P>(rows, columns.k()) + round_up(rows, kStrip) * packed_depth<P>(at) +
           row * packed_depth<P>(chunk);
  }
  i32* offsets() const {
    return reinterpret_cast<i32*>(reinterpret_cast<char*>(packed) +
                                  round_up(groups * packed_elems_of<P>(rows, columns.k()) * static_cast<i64>(sizeof(P)), 64));
  }

  void pack(i64 group, i64 at, i64 row) const {
    alignas(64) T tile[kStrip * kDepth<P>];
    const i64 chunk = std::min(kDepth<P>, columns.k() - at), used = std::min(kStrip, rows - row);
    Weights<T> of_group = weights;
    of_group.data += group * weights_group;
    gather_columns(columns, of_group, row, row + used, at, at + chunk, tile, kDepth<P>);
    gemm::pack(Side::a, gemm::Operand<T>{tile, kDepth<P>, 1}, used, chunk, packed_at(group, at, row));
  }

  // Stores sums of m rows and `number` positions of an image, from `position` on. Either
  // these positions lie in one line of the grid, or their places in `out` are adjacent.
  void store(i64 group, i64 row, i64 m, i64 image, i64 position, i64 number, const Wide<T>* sums) const {
    T* to = out + image * place.image_stride + (group * rows + row) * place.plane + place.first +
            position / place.columns * place.row_step + position % place.columns * place.column_step;
    for (i64 r = 0; r < m; ++r, to += place.plane, sums += kStrip) {
      const Wide<T> added = bias ? widen(bias[group * rows + row + r]) : Wide<T>(0);
      if (place.column_step == 1) {
        for (i64 i = 0; i < number; ++i) to[i] = narrow<T>(sums[i] + added);
      } else {
        for (i64 i = 0; i < number; ++i) to[i * place.column_step] = narrow<T>(sums[i] + added);
      }
    }
  }

  void multiply_gathered(i64 group, i64 strip, i64 row, i64 m) const {
    alignas(64) T tile[kStrip * kDepth<P>];
    alignas(64) P streamed[kStrip * kDepth<P>];
    alignas(64) Wide<T> sums[kMaxRows * kStrip];
    const i64 k = columns.k(), begin = strip * kStrip, end = std::min(columns.j(), begin + kStrip), n = end - begin;
    if (k == 0) std::fill(sums, sums + m * kStrip, Wide<T>(0));
    for (i64 at = 0; at < k; at += kDepth<P>) {
      const i64 chunk = std::min(kDepth<P>, k - at);
      gather_columns(columns, source + group * source_group, at, at + chunk, begin, end, tile, kStrip);
      gemm::pack(Side::b, gemm::Operand<T>{tile, 1, kStrip}, n, chunk, streamed);
      gemm::multiply<P, Wide<T>>(m, n, chunk, {packed_at(group, at, row), chunk}, {streamed, chunk},
                                 {sums, kStrip, at == 0 ? nullptr : sums, kStrip});
    }
    const i64 lines = place.positions / place.columns;  // the number of lines in the grid of one image
    for_stretches(place.columns, begin, end, [&](i64 line, i64 first, i64 number, i64 at) {
      store(group, row, m, line / lines, line % lines * place.columns + first, number, sums + at);
    });
  }

  void multiply_tile(const TileShape& shape, i64 group, i64 image, i64 first_row, i64 row, i64 m) const {
    if constexpr (sizeof(P) != 2) {
      alignas(64) P tile[kTileBytes / sizeof(P)];
      alignas(64) P sums[kMaxRows * kStrip];
      const i64 number = std::min(shape.rows(), columns.h.positions - first_row), end = shape.positions_in(number);
      shape.fill(source + group * source_group + image * columns.image_stride, columns.channels, first_row, number, tile);
      for (i64 begin = 0; begin < end; begin += kStrip) {
        const i64 n = std::min(kStrip, end - begin);
        for (i64 at = 0; at < columns.k(); at += kDepth<P>) {
          const i64 chunk = std::min(kDepth<P>, columns.k() - at);
          gemm::multiply_columns<P>(m, n, chunk, {packed_at(group, at, row), chunk}, tile + begin, offsets() + at, sums, at > 0);
        }
        for_stretches(shape.pitch(), begin, begin + n, [&](i64 line, i64 first, i64 length, i64 at) {
          const i64 used = std::min(length, columns.w.positions - first);
          if (used > 0) store(group, row, m, image, (first_row + line) * columns.w.positions + first, used, sums + at);
        });
      }
    }
  }

  void run() const {
    if constexpr (std::is_same_v<T, float>) {
      if (takes_winograd(columns, rows)) {
        WinogradProduct{columns, weights, source, bias, out, place.image_stride, groups, rows, source_group, weights_group, packed}.run();
        return;
      }
    }
    const Stream& stream = Stream::current();
    const i64 row_strips = ceil_div(rows, kStrip), chunks = ceil_div(columns.k(), kDepth<P>);
    stream.run(groups * chunks * row_strips, [&](i64 task, int) {
      pack(task / (chunks * row_strips), task / row_strips % chunks * kDepth<P>, task % row_strips * kStrip);
    });
    const i64 tiled = tile_rows<P>(columns, groups, rows);
    const i64 of_image = tiled > 0 ? ceil_div(columns.h.positions, tiled) : 0;
    const i64 pieces = tiled > 0 ? columns.images * of_image : ceil_div(columns.j(), kStrip);
    const i64 step = task_rows(pieces), blocks = ceil_div(rows, step);
    std::optional<TileShape> shape;
    if (tiled > 0) shape.emplace(columns, columns.channels, tiled).offsets(offsets());
    stream.run(groups * pieces * blocks, [&](i64 task, int) {
      const i64 group = task / (pieces * blocks), piece = task / blocks % pieces, row = task % blocks * step,
                m = std::min(step, rows - row);
      shape ? multiply_tile(*shape, group, piece / of_image, piece % of_image * tiled, row, m) : multiply_gathered(group, piece, row, m);
    });
  }
};

void check(const ConvShape& s, const Tensor& x, const Tensor& w, const Tensor& y) {
  const Pair at = s.positions();
  require(s.groups >= 1 && s.inputs % s.groups == 0 && s.outputs % s.groups == 0 && s.images >= 1,
          "[conv2d] expected at least one image and one group, and numbers of channels that are multiples of the number of groups");
  require(x.is_contiguous() && w.is_contiguous() && y.is_contiguous(), "[conv2d] expected contiguous views x, w and y");
  require(x.elems() == s.images * s.inputs * s.extent.h * s.extent.w && y.elems() == s.images * s.outputs * at.h * at.w &&
              w.elems() == s.outputs * s.inputs_of_group() * s.window.kernel.h * s.window.kernel.w,
          "[conv2d] expected x, y and w to have the sizes that the shape of the convolution implies");
  require(x.dtype() == y.dtype() && w.dtype() == x.dtype(), "[conv2d] expected x, w and y of the same dtype");
}

void check_bias(const Tensor& bias, i64 channels, DType dtype) {
  require(!bias.defined() || (bias.elems() == channels && bias.is_contiguous() && bias.dtype() == dtype),
          "[conv2d] expected a contiguous bias with one element for each channel, of the dtype of the images");
}

// Computes the sum over the images and positions of one channel.
template <class T, class Out>
void sum_channel(const T* x, i64 images, i64 image_stride, i64 plane, Out* to) {
  double lanes[8] = {};
  for (i64 n = 0; n < images; ++n, x += image_stride) {
    i64 i = 0;
    for (; i + 8 <= plane; i += 8) {
      for (i64 lane = 0; lane < 8; ++lane) lanes[lane] += static_cast<double>(widen(x[i + lane]));
    }
    for (; i < plane; ++i) lanes[i % 8] += static_cast<double>(widen(x[i]));
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  *to = narrow<Out>(static_cast<Wide<Out>>(sum));
}

}  // namespace

i64 conv2d_workspace_bytes(const ConvShape& s, DType dtype) {
  if (Stream::current().device.works_as_cuda()) return product_strips(forward_columns(s), s.outputs_of_group(), dtype).bytes;
  i64 bytes = 0;
  for_dtype("conv2d", dtype, [&]<class T>(T) { bytes = workspace_bytes_of<T>(forward_columns(s), s.groups, s.outputs_of_group()); });
  return bytes;
}

void conv2d(const ConvShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y, const Tensor& workspace) {
  check(s, x, w, y);
  check_bias(bias, s.outputs, x.dtype());
  require(workspace.bytes() >= conv2d_workspace_bytes(s, x.dtype()), "[conv2d] expected a workspace of at least conv2d_workspace_bytes()");
  count_flops(conv_flops(s));
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, conv2d(s, x, w, bias, y, workspace));
  const i64 taps = s.window.kernel.h * s.window.kernel.w, rows = s.outputs_of_group(), inputs = s.inputs_of_group();
  for_dtype("conv2d", x.dtype(), [&]<class T>(T) {
    Product<T>{forward_columns(s),
               {w.data<T>(), inputs * taps, taps, s.window.kernel},
               x.data<T>(),
               data_or_null<T>(bias),
               y.data<T>(),
               forward_place(s),
               s.groups,
               rows,
               inputs * s.extent.h * s.extent.w,
               rows * inputs * taps,
               reinterpret_cast<PanelOf<T>*>(workspace.raw())}
        .run();
  });
}

i64 conv2d_input_gradient_workspace_bytes(const ConvShape& s, DType dtype) {
  const bool on_gpu = Stream::current().device.works_as_cuda();
  i64 bytes = 0;
  for (i64 row = 0; row < std::min(s.window.stride.h, s.extent.h); ++row) {
    for (i64 column = 0; column < std::min(s.window.stride.w, s.extent.w); ++column) {
      const Columns columns = phase_columns(s, row, column);
      for_dtype("conv2d", dtype, [&]<class T>(T) {
        bytes = std::max(bytes, on_gpu ? product_strips(columns, s.inputs_of_group(), dtype).bytes
                                       : workspace_bytes_of<T>(columns, s.groups, s.inputs_of_group()));
      });
    }
  }
  return bytes;
}

void conv2d_input_gradient(const ConvShape& s, const Tensor& dy, const Tensor& w, const Tensor& bias, const Tensor& dx,
                           const Tensor& workspace) {
  check(s, dx, w, dy);
  check_bias(bias, s.inputs, dx.dtype());
  require(workspace.bytes() >= conv2d_input_gradient_workspace_bytes(s, dx.dtype()),
          "[conv2d] expected a workspace of at least conv2d_input_gradient_workspace_bytes()");
  count_flops(conv_flops(s));
  if (dx.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dx, conv2d_input_gradient(s, dy, w, bias, dx, workspace));
  const i64 taps = s.window.kernel.h * s.window.kernel.w, rows = s.inputs_of_group(), outputs = s.outputs_of_group();
  const Pair stride = s.window.stride, at = s.positions();
  for (i64 row = 0; row < std::min(stride.h, s.extent.h); ++row) {
    for (i64 column = 0; column < std::min(stride.w, s.extent.w); ++column) {
      const Columns columns = phase_columns(s, row, column);
      for_dtype("conv2d", dx.dtype(), [&]<class T>(T) {
        Product<T>{columns,
                   {w.data<T>(), taps, rows * taps, s.window.kernel},
                   dy.data<T>(),
                   data_or_null<T>(bias),
                   dx.data<T>(),
                   phase_place(s, row, column, columns),
                   s.groups,
                   rows,
                   outputs * at.h * at.w,
                   outputs * rows * taps,
                   reinterpret_cast<PanelOf<T>*>(workspace.raw())}
            .run();
      });
    }
  }
}

void sum_channels(const Tensor& x, const Tensor& to) {
  require(x.rank() >= 2 && x.is_contiguous() && to.is_contiguous() && to.elems() == x.size(1) && x.elems() > 0,
          "[sum_channels] expected a contiguous x[N, C, ...] with elements, and a contiguous result with one sum for each channel");
  if (x.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(x, sum_channels(x, to));
  const i64 images = x.size(0), channels = x.size(1), plane = x.elems() / (images * channels);
  for_dtypes("sum_channels", x.dtype(), to.dtype(), [&]<class T, class Out>(T, Out) {
    const T* from = x.data<T>();
    Out* sums = to.data<Out>();
    Stream::current().run(channels, [&](i64 c, int) { sum_channel(from + c * plane, images, channels * plane, plane, sums + c); });
  });
}

}  // namespace spillway::kernels

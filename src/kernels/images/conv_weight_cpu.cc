#include <algorithm>
#include <array>
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

constexpr i64 kBlock = 3 * kStrip;  // the columns of dw that a gathering task sums: several strips, so that dy is packed less often
constexpr i64 kTasks = 8;           // the fewest tasks; if dw is small, the positions are divided into parts that are summed separately
constexpr i64 kLeastLine = 4;       // the fewest positions of a grid row for which reading tiles line by line is faster than gathering
constexpr i64 kLeastChannels = 16;  // the fewest channels of a task that reads tiles, since it packs dy once for all their taps
constexpr i64 kFewOutputs = 8;      // up to this many outputs, a vector holds neighbouring positions of a grid row instead of outputs
constexpr i64 kFewSums = 8192;      // the most sums for such vectors of positions; their partial sums must stay in the second-level cache

// Divides the positions over which dw is summed among tiles. A chunk of the sum is some whole grid rows
// of one image, which are one tile, or several whole images with a tile each. The division depends on
// shape and dtype alone. If `channels` is 0, there are no tiles and the columns are gathered.
template <class P>
struct Tiles {
  i64 channels = 0, rows = 1, of_image = 1, images = 1;  // channels in a task; grid rows in a tile; tiles in an image; images in a chunk

  explicit Tiles(const Columns& columns, i64 groups) {
    const i64 line = columns.w.positions, lines = columns.h.positions, chunk = kDepth<P>;
    if (sizeof(P) == 2 || columns.k() == 0 || line < kLeastLine || line > chunk) return;
    rows = std::min(lines, chunk / line);
    if (rows == lines) images = std::min(columns.images, std::max<i64>(1, chunk / (rows * line)));
    of_image = ceil_div(lines, rows);
    const i64 one = TileShape(columns, 1, rows).elems(), each = TileShape(columns, 2, rows).elems() - one;
    const i64 fitting = (kTileBytes / static_cast<i64>(sizeof(P)) / images - (one - each)) / each;
    channels = std::clamp<i64>(std::max(kLeastChannels, ceil_div(columns.channels * groups, kTasks)), 0,
                               std::max<i64>(0, std::min(columns.channels, fitting)));
  }
};

// Divides the sum dw[O, K] of one group, over the J positions of all images, into
// chunks of at most kDepth positions. The division depends on shape and dtype alone.
template <class T>
struct Cut {
  using P = PanelOf<T>;
  static constexpr i64 kChunk = kDepth<P>;
  Columns columns;
  Tiles<P> tiles;
  i64 groups, outputs, k, chunks, blocks, parts, output_stride, k_stride;
  bool dots;  // whether every sum is kept as kDotParts adjacent partial sums

  explicit Cut(const ConvShape& s)
      : columns(forward_columns(s)), tiles(columns, s.groups), groups(s.groups), outputs(s.outputs_of_group()), k(columns.k()) {
    const bool tiled = tiles.channels > 0;
    chunks = tiled ? ceil_div(columns.images * tiles.of_image, tiles.images) : ceil_div(columns.j(), kChunk);
    blocks = tiled ? ceil_div(columns.channels, tiles.channels) : ceil_div(k, kBlock);
    parts = std::clamp<i64>(ceil_div(kTasks, std::max<i64>(1, groups * blocks)), 1, chunks);
    dots = std::is_same_v<T, Wide<T>> && tiled && outputs <= kFewOutputs && outputs * k <= kFewSums;
    output_stride = dots ? gemm::kDotParts<Wide<T>> : tiled ? 1 : k;
    // in the layouts for tiles the distance is a multiple of 16 elements, so that vectors are whole
    k_stride = dots ? outputs * output_stride : tiled ? round_up(outputs, 16) : 1;
  }
  i64 part_elems() const { return k * std::max(outputs, k_stride); }
  i64 elems() const { return groups * parts * part_elems(); }
  i64 offsets() const { return round_up(tiles.channels * columns.taps(), 8); }
};

// Computes sums[group][part][O, K] = dy[O, J of the part] columns[K, J of the part]^T. The layout of a part of `sums` is [O, K] if columns
// are gathered, [K, O] if tiles are read, and [K, O, kDotParts] for few outputs.
template <class T>
struct PartialGradients {
  using P = PanelOf<T>;
  Cut<T> cut;
  Columns positions;
  const T *x, *dy;
  i64 x_group, dy_group;
  Wide<T>* sums;

  i32* offsets() const { return reinterpret_cast<i32*>(sums + cut.elems()); }

  void add_gathered(i64 group, i64 first_k, i64 begin, i64 end, bool first, Wide<T>* to) const {
    alignas(64) T tile[kStrip * kDepth<P>];
    alignas(64) P packed_columns[kBlock * kDepth<P>], packed_dy[kStrip * kDepth<P>];
    const i64 n = end - begin, block = std::min(kBlock, cut.k - first_k);
    for (i64 at = 0; at < block; at += kStrip) {
      const i64 used = std::min(kStrip, block - at);
      gather_columns(cut.columns, x + group * x_group, first_k + at, first_k + at + used, begin, end, tile, kDepth<P>);
      gemm::pack(Side::b, gemm::Operand<T>{tile, kDepth<P>, 1}, used, n, packed_columns + at * packed_depth<P>(n));
    }
    for (i64 row = 0; row < cut.outputs; row += kStrip) {
      const i64 rows = std::min(kStrip, cut.outputs - row);
      gather_columns(positions, dy + group * dy_group, row, row + rows, begin, end, tile, kDepth<P>);
      gemm::pack(Side::a, gemm::Operand<T>{tile, kDepth<P>, 1}, rows, n, packed_dy);
      Wide<T>* c = to + row * cut.k + first_k;
      gemm::multiply<P, Wide<T>>(rows, block, n, {packed_dy, n}, {packed_columns, n}, {c, cut.k, first ? nullptr : c, cut.k});
    }
  }

  // Adds the products of tiles [begin, end), counted over all images, to the sums of channels [channel, channel + number).
  void add_tiles(const TileShape& shape, i64 group, i64 channel, i64 number, i64 begin, i64 end, bool first, Wide<T>* to) const {
    if constexpr (sizeof(P) != 2) {
      alignas(64) P tiles[kTileBytes / sizeof(P)];
      alignas(64) T tile[kStrip * kDepth<P>];
      alignas(64) P packed_dy[kStrip * kDepth<P>];
      i32 lines[kDepth<P>];
      const Columns& c = cut.columns;
      const auto first_row = [&](i64 piece) { return piece % cut.tiles.of_image * cut.tiles.rows; };
      i64 count = 0;
      for (i64 piece = begin; piece < end; ++piece) {
        const i64 row = first_row(piece), rows = std::min(cut.tiles.rows, c.h.positions - row), at = (piece - begin) * shape.elems();
        const T* image = x + group * x_group + piece / cut.tiles.of_image * c.image_stride;
        shape.fill(image + channel * c.h.source * c.w.source, number, row, rows, tiles + at);
        for (i64 line = 0; line < rows; ++line) lines[count++] = static_cast<i32>(at + line * shape.pitch());
      }
      if (cut.dots) return add_dots(shape, group, channel * c.taps(), number * c.taps(), begin, end, tiles, lines, first, to);
      const i64 j = (begin / cut.tiles.of_image * c.h.positions + first_row(begin)) * c.w.positions, n = count * c.w.positions;
      const gemm::Lined<P> a{tiles, offsets(), lines, count, c.w.positions};
      for (i64 output = 0; output < cut.outputs; output += kStrip) {
        const i64 used = std::min(kStrip, cut.outputs - output);
        gather_columns(positions, dy + group * dy_group, output, output + used, j, j + n, tile, kDepth<P>);
        gemm::pack(Side::b, gemm::Operand<T>{tile, kDepth<P>, 1}, used, n, packed_dy);
        gemm::multiply_lines<P>(number * c.taps(), used, a, {packed_dy, n}, to + channel * c.taps() * cut.k_stride + output, cut.k_stride,
                                !first);
      }
    }
  }

  // Adds the products of tiles [begin, end) to the sums of the k in [first_k, first_k + number), for few
  // outputs. Tiles are processed one after the other, because the lines of a tile must be contiguous in dy.
  void add_dots(const TileShape& shape, i64 group, i64 first_k, i64 number, i64 begin, i64 end, const P* tiles, const i32* lines,
                bool first, Wide<T>* to) const {
    if constexpr (std::is_same_v<T, P> && std::is_same_v<T, Wide<T>>) {
      const Columns& c = cut.columns;
      const i64 plane = c.h.positions * c.w.positions;
      to += first_k * cut.k_stride;
      if (first) std::fill_n(to, number * cut.k_stride, T(0));
      for (i64 piece = begin; piece < end; ++piece, tiles += shape.elems()) {
        const i64 row = piece % cut.tiles.of_image * cut.tiles.rows, rows = std::min(cut.tiles.rows, c.h.positions - row);
        const T* from = dy + group * dy_group + piece / cut.tiles.of_image * positions.image_stride + row * c.w.positions;
        gemm::add_dots<P>(number, cut.outputs, {tiles, offsets(), lines, rows, c.w.positions}, from, plane, to);
      }
    }
  }

  void run() const {
    std::optional<TileShape> shape;
    if (cut.tiles.channels > 0) shape.emplace(cut.columns, cut.tiles.channels, cut.tiles.rows).offsets(offsets());
    Stream::current().run(cut.groups * cut.parts * cut.blocks, [&](i64 task, int) {
      const i64 block = task % cut.blocks, part = task / cut.blocks % cut.parts, group = task / (cut.blocks * cut.parts);
      const i64 begin = part * cut.chunks / cut.parts, end = (part + 1) * cut.chunks / cut.parts;
      Wide<T>* to = sums + (group * cut.parts + part) * cut.part_elems();
      for (i64 chunk = begin; chunk < end; ++chunk) {
        const auto span = [&](i64 extent, i64 all) { return std::pair(chunk * extent, std::min(all, (chunk + 1) * extent)); };
        if (shape) {
          const auto [first, last] = span(cut.tiles.images, cut.columns.images * cut.tiles.of_image);
          const i64 channel = block * cut.tiles.channels, number = std::min(cut.tiles.channels, cut.columns.channels - channel);
          add_tiles(*shape, group, channel, number, first, last, chunk == begin, to);
        } else {
          const auto [first, last] = span(cut.kChunk, cut.columns.j());
          add_gathered(group, block * kBlock, first, last, chunk == begin, to);
        }
      }
    });
  }
};

// Adds the kDotParts partial sums of a sum pairwise: the second half is added to the first half, until one is left.
template <class T>
T sum_parts(const T* parts) {
  T sums[gemm::kDotParts<T>];
  std::copy_n(parts, gemm::kDotParts<T>, sums);
  for (i64 half = gemm::kDotParts<T> / 2; half > 0; half /= 2) {
    for (i64 i = 0; i < half; ++i) sums[i] += sums[half + i];
  }
  return sums[0];
}

// Writes rows [begin, end) of dw[O, C / groups, kh, kw] of one group. The parts are added in order. Taps that were skipped get zero.
template <class T, class Out>
void finish_rows(const PartialGradients<T>& partial, const ConvShape& s, i64 begin, i64 end, Out* dw) {
  const Cut<T>& cut = partial.cut;
  const Columns& columns = cut.columns;
  const i64 taps = columns.taps(), size = s.window.kernel.h * s.window.kernel.w, row = s.inputs_of_group() * size;
  std::array<i64, kMaxKernel * kMaxKernel> places;
  for (i64 tap = 0; tap < taps; ++tap) {
    const auto h = static_cast<size_t>(tap / columns.w.count), w = static_cast<size_t>(tap % columns.w.count);
    places[static_cast<size_t>(tap)] = columns.h.tap[h] * s.window.kernel.w + columns.w.tap[w];
  }
  if (taps < size) std::fill(dw + begin * row, dw + end * row, narrow<Out>(0));
  const Wide<T>* first = partial.sums + begin / cut.outputs * cut.parts * cut.part_elems() + begin % cut.outputs * cut.output_stride;
  for (i64 c = 0; c < columns.channels; ++c, first += taps * cut.k_stride) {
    const Wide<T>* from = first;
    for (i64 output = begin; output < end; ++output, from += cut.output_stride) {
      Out* to = dw + output * row + c * size;
      for (i64 tap = 0; tap < taps; ++tap) {
        const Wide<T>* term = from + tap * cut.k_stride;
        Wide<T> sum = cut.dots ? sum_parts(term) : term[0];
        for (i64 part = 1; part < cut.parts; ++part) {
          term += cut.part_elems();
          sum += cut.dots ? sum_parts(term) : term[0];
        }
        to[places[static_cast<size_t>(tap)]] = narrow<Out>(sum);
      }
    }
  }
}

}  // namespace

i64 conv2d_weight_gradient_workspace_bytes(const ConvShape& s, DType dtype) {
  if (Stream::current().device.works_as_cuda()) return gradient_strips(forward_columns(s), s.outputs_of_group(), dtype).bytes;
  i64 bytes = 0;
  for_dtype("conv2d", dtype, [&]<class T>(T) {
    if (std::is_same_v<T, float> && takes_winograd_gradient(s)) {
      bytes = WinogradGradient(s).elems() * static_cast<i64>(sizeof(float));
      return;
    }
    const Cut<T> cut(s);
    bytes = cut.elems() * static_cast<i64>(sizeof(Wide<T>)) + cut.offsets() * static_cast<i64>(sizeof(i32));
  });
  return bytes;
}

void conv2d_weight_gradient(const ConvShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& workspace) {
  const Pair at = s.positions();
  require(x.is_contiguous() && dy.is_contiguous() && dw.is_contiguous() && x.dtype() == dy.dtype(),
          "[conv2d] expected contiguous views x, dy and dw, and x and dy of the same dtype");
  require(x.elems() == s.images * s.inputs * s.extent.h * s.extent.w && dy.elems() == s.images * s.outputs * at.h * at.w &&
              dw.elems() == s.outputs * s.inputs_of_group() * s.window.kernel.h * s.window.kernel.w,
          "[conv2d] expected x, dy and dw to have the sizes that the shape of the convolution implies");
  require(workspace.bytes() >= conv2d_weight_gradient_workspace_bytes(s, x.dtype()),
          "[conv2d] expected a workspace of at least conv2d_weight_gradient_workspace_bytes()");
  count_flops(conv_flops(s));
  if (dw.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(dw, conv2d_weight_gradient(s, x, dy, dw, workspace));
  for_dtypes("conv2d", x.dtype(), dw.dtype(), [&]<class T, class Out>(T, Out) {
    if constexpr (std::is_same_v<T, float>) {
      if (takes_winograd_gradient(s)) {
        return WinogradGradient(s).run(x.data<T>(), dy.data<T>(), dw.data<Out>(), reinterpret_cast<float*>(workspace.raw()));
      }
    }
    const PartialGradients<T> partial{Cut<T>(s),
                                      position_columns(s),
                                      x.data<T>(),
                                      dy.data<T>(),
                                      s.inputs_of_group() * s.extent.h * s.extent.w,
                                      s.outputs_of_group() * at.h * at.w,
                                      reinterpret_cast<Wide<T>*>(workspace.raw())};
    partial.run();
    Out* to = dw.data<Out>();
    // If the sums are in the layout [K, O], a task takes the outputs of whole cache lines.
    const i64 outputs = s.outputs_of_group(), row = dw.elems() / s.outputs, least = partial.cut.output_stride == 1 ? 16 : 1;
    const i64 grain = std::min(outputs, round_up(std::max<i64>(1, (1 << 14) / row), least)), pieces = ceil_div(outputs, grain);
    Stream::current().run(s.groups * pieces, [&](i64 task, int) {
      const i64 first = task / pieces * outputs, begin = task % pieces * grain;
      finish_rows(partial, s, first + begin, first + std::min(outputs, begin + grain), to);
    });
  });
}

}  // namespace spillway::kernels

#include <algorithm>

#include "kernels/convolution/conv.h"
#include "kernels/convolution/conv_flops.h"
#include "kernels/convolution/conv_strips.h"
#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/matmul/gemm.h"
#include "tensor/flop_count.h"

namespace spillway::kernels {
namespace {

using gemm::kDepth;
using gemm::kStrip;
using gemm::packed_depth;
using gemm::PanelOf;
using gemm::Side;

constexpr i64 kBlock = 3 * kStrip;  // columns of the weight that one task sums, so that dy is packed for more than a strip
constexpr i64 kTasks = 8;           // at least, where the positions are many: small weights are summed in parts

// How dw[O, K] of one group, a sum over the J positions of all images in chunks of kDepth, is cut: a function of shape and type.
template <class T>
struct Cut {
  static constexpr i64 kChunk = kDepth<PanelOf<T>>;
  i64 groups, outputs, k, chunks, blocks, parts;

  explicit Cut(const ConvShape& s) : groups(s.groups), outputs(s.outputs_of_group()) {
    const Columns columns = forward_columns(s);
    k = columns.k();
    chunks = ceil_div(columns.j(), kChunk);
    blocks = ceil_div(k, kBlock);
    parts = std::clamp<i64>(ceil_div(kTasks, std::max<i64>(1, groups * blocks)), 1, chunks);
  }
  i64 part_elems() const { return outputs * k; }
  i64 elems() const { return groups * parts * part_elems(); }
};

// sums[group][part][O, K] = dy[O, J of the part] columns[K, J of the part]^T.
template <class T>
struct PartialGradients {
  using P = PanelOf<T>;
  Cut<T> cut;
  Columns columns, positions;
  const T *x, *dy;
  i64 x_group, dy_group;
  Wide<T>* sums;

  void add_chunk(i64 group, i64 first_k, i64 begin, i64 end, bool first, Wide<T>* to) const {
    alignas(64) T tile[kStrip * kDepth<P>];
    alignas(64) P packed_columns[kBlock * kDepth<P>], packed_dy[kStrip * kDepth<P>];
    const i64 n = end - begin, block = std::min(kBlock, cut.k - first_k);
    for (i64 at = 0; at < block; at += kStrip) {
      const i64 used = std::min(kStrip, block - at);
      gather(columns, x + group * x_group, first_k + at, first_k + at + used, begin, end, tile, kDepth<P>);
      gemm::pack(Side::b, gemm::Operand<T>{tile, kDepth<P>, 1}, used, n, packed_columns + at * packed_depth<P>(n));
    }
    for (i64 row = 0; row < cut.outputs; row += kStrip) {
      const i64 rows = std::min(kStrip, cut.outputs - row);
      gather(positions, dy + group * dy_group, row, row + rows, begin, end, tile, kDepth<P>);
      gemm::pack(Side::a, gemm::Operand<T>{tile, kDepth<P>, 1}, rows, n, packed_dy);
      Wide<T>* c = to + row * cut.k + first_k;
      gemm::multiply<P, Wide<T>>(rows, block, n, {packed_dy, n}, {packed_columns, n}, {c, cut.k, first ? nullptr : c, cut.k});
    }
  }

  void run() const {
    Stream::current().run(cut.groups * cut.parts * cut.blocks, [&](i64 task, int) {
      const i64 block = task % cut.blocks, part = task / cut.blocks % cut.parts, group = task / (cut.blocks * cut.parts);
      const i64 first = part * cut.chunks / cut.parts, last = (part + 1) * cut.chunks / cut.parts;
      Wide<T>* to = sums + (group * cut.parts + part) * cut.part_elems();
      for (i64 chunk = first; chunk < last; ++chunk) {
        add_chunk(group, block * kBlock, chunk * kDepth<P>, std::min(columns.j(), (chunk + 1) * kDepth<P>), chunk == first, to);
      }
    });
  }
};

// Row `output` of dw[O, C / groups, kh, kw]: the parts added in order, zero for taps that took no part.
template <class T, class Out>
void finish_row(const PartialGradients<T>& partial, const ConvShape& s, i64 output, Out* to) {
  const Cut<T>& cut = partial.cut;
  const Columns& columns = partial.columns;
  const i64 size = s.window.kernel.h * s.window.kernel.w;
  const Wide<T>* first = partial.sums + output / cut.outputs * cut.parts * cut.part_elems() + output % cut.outputs * cut.k;
  if (columns.taps() < size) std::fill(to, to + s.inputs_of_group() * size, narrow<Out>(0));
  i64 k = 0;
  for (i64 c = 0; c < columns.channels; ++c, to += size) {
    for (i64 h = 0; h < columns.h.count; ++h) {
      Out* row = to + columns.h.tap[static_cast<size_t>(h)] * s.window.kernel.w;
      for (i64 w = 0; w < columns.w.count; ++w, ++k) {
        Wide<T> sum = first[k];
        for (i64 part = 1; part < cut.parts; ++part) sum += first[part * cut.part_elems() + k];
        row[columns.w.tap[static_cast<size_t>(w)]] = narrow<Out>(sum);
      }
    }
  }
}

}  // namespace

i64 conv2d_weight_gradient_workspace_bytes(const ConvShape& s, DType dtype) {
  if (Stream::current().device.works_as_cuda()) return gradient_strips(forward_columns(s), s.outputs_of_group(), dtype).bytes;
  i64 elems = 0;
  for_dtype("conv2d", dtype, [&]<class T>(T) { elems = Cut<T>(s).elems(); });
  return elems * size_of(wide_dtype(dtype));
}

void conv2d_weight_gradient(const ConvShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& workspace) {
  const Pair at = s.positions();
  require(x.is_contiguous() && dy.is_contiguous() && dw.is_contiguous() && x.dtype() == dy.dtype(),
          "[conv2d] expected contiguous views, images and gradient of one dtype");
  require(x.elems() == s.images * s.inputs * s.extent.h * s.extent.w && dy.elems() == s.images * s.outputs * at.h * at.w &&
              dw.elems() == s.outputs * s.inputs_of_group() * s.window.kernel.h * s.window.kernel.w,
          "[conv2d] the views do not fit the shape");
  require(workspace.bytes() >= conv2d_weight_gradient_workspace_bytes(s, x.dtype()), "[conv2d] the workspace is too small");
  count_flops(conv_flops(s));
  if (dw.device().is_meta()) return;
  if constexpr (kHasCuda) {
    if (dw.device().is_cuda()) return cuda::conv2d_weight_gradient(s, x, dy, dw, workspace);
  }
  for_dtypes("conv2d", x.dtype(), dw.dtype(), [&]<class T, class Out>(T, Out) {
    const PartialGradients<T> partial{Cut<T>(s),
                                      forward_columns(s),
                                      position_columns(s),
                                      x.data<T>(),
                                      dy.data<T>(),
                                      s.inputs_of_group() * s.extent.h * s.extent.w,
                                      s.outputs_of_group() * at.h * at.w,
                                      reinterpret_cast<Wide<T>*>(workspace.raw())};
    partial.run();
    Out* to = dw.data<Out>();
    const i64 row = dw.elems() / s.outputs;
    Stream::current().for_ranges(s.outputs, std::max<i64>(1, (1 << 14) / row), [&](i64 begin, i64 end) {
      for (i64 output = begin; output < end; ++output) finish_row(partial, s, output, to + output * row);
    });
  });
}

}  // namespace spillway::kernels

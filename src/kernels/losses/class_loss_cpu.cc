#include "kernels/losses/class_loss.h"

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"
#include "kernels/lanes_cpu.h"
#include "kernels/losses/class_rows.h"

namespace spillway::kernels {
namespace {

void check_rows(const Tensor& x, const Tensor& targets, const Tensor& weights, const Tensor& statistics) {
  require(x.rank() == 2 && x.is_contiguous() && x.size(1) > 0, "[class_loss] expected a contiguous x[N, V] with V > 0");
  require(targets.elems() == x.size(0) && targets.is_contiguous() && targets.dtype() == DType::int32,
          "[class_loss] expected contiguous int32 targets, one for each row");
  const DType wide = wide_dtype(x.dtype());
  require(!weights.defined() || (weights.elems() == x.size(1) && weights.is_contiguous() && weights.dtype() == wide),
          "[class_loss] expected one class weight for each of the V classes, in f32 (f64 if x is f64)");
  require(!statistics.defined() || (statistics.elems() == 2 * x.size(0) && statistics.dtype() == wide),
          "[class_loss] expected softmax statistics of two numbers for each row, in f32 (f64 if x is f64)");
}

// Calls f(row) for every row of x. Each row is computed by one task.
template <class F>
void for_class_rows(const Tensor& x, F f) {
  for_lanes({x.size(0), x.size(1), 1}, [=](i64 row, i64) { f(row); });
}

}  // namespace

void class_loss(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                const Tensor& losses, const Tensor& counted) {
  check_rows(x, targets, weights, statistics);
  if (x.device().is_meta() || x.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, class_loss(x, targets, weights, form, statistics, losses, counted));
  for_dtype("class_loss", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const ClassRows<T> rows = class_rows<T>(x, targets, weights, form, statistics);
    W *loss = losses.data<W>(), *weight = counted.data<W>();
    for_class_rows(x, [=](i64 row) {
      const i32 target = rows.targets[row];
      loss[row] = weight[row] = 0;
      if (!rows.counts(row)) return;
      if (target >= rows.columns) {
        throw Error(ErrorCode::data, "[class_loss] target " + std::to_string(target) + " of row " + std::to_string(row) +
                                         " (rows are counted from 0) is not below the number of classes, " + std::to_string(rows.columns));
      }
      weight[row] = rows.weight(target);
      loss[row] = rows.own * weight[row] * rows.minus_log(row, target);
      if (rows.spread == 0) return;
      double sum = 0;
      for (i64 c = 0; c < rows.columns; ++c) sum += static_cast<double>(rows.weight(c) * rows.minus_log(row, c));
      loss[row] += rows.spread * static_cast<W>(sum);
    });
  });
}

void class_loss_gradient(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                         const Tensor& dlosses, double factor, const Tensor& dx) {
  check_rows(x, targets, weights, statistics);
  require(dx.shape() == x.shape() && dx.is_contiguous() && dx.dtype() == x.dtype(),
          "[class_loss] expected a contiguous dx of x's shape and dtype");
  if (x.device().is_meta() || x.elems() == 0) return;
  SPILLWAY_RETURN_IF_CUDA(x, class_loss_gradient(x, targets, weights, form, statistics, dlosses, factor, dx));
  for_dtype("class_loss_gradient", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    const ClassRows<T> rows = class_rows<T>(x, targets, weights, form, statistics);
    const W* upstream = data_or_null<W>(dlosses);
    T* to = dx.data<T>();
    for_class_rows(x, [=](i64 row) {
      double sum = 0;
      for (i64 c = 0; rows.spread != 0 && c < rows.columns; ++c) sum += static_cast<double>(rows.weight(c));
      const bool counts = rows.counts(row);
      const W all = counts ? rows.own * rows.weight(rows.targets[row]) + rows.spread * static_cast<W>(sum) : W(0);
      const W g = (upstream ? upstream[row] : W(1)) * static_cast<W>(factor);
      for (i64 c = 0; c < rows.columns; ++c) to[row * rows.columns + c] = narrow<T>(counts ? rows.gradient(row, c, g, all) : W(0));
    });
  });
}

}  // namespace spillway::kernels

#include "kernels/losses/class_loss.h"

#include <limits>

#include "kernels/dispatch.h"
#include "kernels/index_report_cuda.h"
#include "kernels/lanes_cuda.h"
#include "kernels/losses/class_rows.h"

namespace spillway::kernels::cuda {
namespace {

template <class T>
struct Losses {
  using W = Wide<T>;
  ClassRows<T> rows;
  W *losses, *counted;
  IndexReport report;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 row, i64) const {
    double sum = 0;
    if (rows.spread != 0) {
      for (i64 c = Rows::rank(); c < axis.n; c += Rows::kThreads) sum += static_cast<double>(rows.weight(c) * rows.minus_log(row, c));
      sum = Rows::fold(sum, Plus());
    }
    if (Rows::rank() != 0) return;
    const i32 target = rows.targets[row];
    if (!rows.counts(row)) {
      losses[row] = counted[row] = 0;
    } else if (target >= axis.n) {
      report(target, axis.n);
      losses[row] = counted[row] = std::numeric_limits<W>::quiet_NaN();
    } else {
      counted[row] = rows.weight(target);
      losses[row] = rows.own * counted[row] * rows.minus_log(row, target);
      if (rows.spread != 0) losses[row] += rows.spread * static_cast<W>(sum);
    }
  }
};

template <class T>
struct LossGradient {
  using W = Wide<T>;
  ClassRows<T> rows;
  const W* upstream;
  W factor;
  T* dx;
  template <class Rows>
  __device__ void lane(const Axis& axis, i64 row, i64 first) const {
    double sum = 0;
    if (rows.spread != 0) {
      for (i64 c = Rows::rank(); c < axis.n; c += Rows::kThreads) sum += static_cast<double>(rows.weight(c));
      sum = Rows::fold(sum, Plus());
    }
    const bool counts = rows.counts(row), outside = counts && rows.targets[row] >= axis.n;
    const W all = !counts || outside ? W(0) : rows.own * rows.weight(rows.targets[row]) + rows.spread * static_cast<W>(sum);
    const W g = outside ? std::numeric_limits<W>::quiet_NaN() : (upstream ? upstream[row] : W(1)) * factor;
    for (i64 c = Rows::rank(); c < axis.n; c += Rows::kThreads)
      dx[first + c] = narrow<T>(outside ? g : counts ? rows.gradient(row, c, g, all) : W(0));
  }
};

}  // namespace

void class_loss(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                const Tensor& losses, const Tensor& counted) {
  for_dtype("class_loss", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    for_lanes_on_gpu(
        "class_loss", {x.size(0), x.size(1), 1},
        Losses<T>{class_rows<T>(x, targets, weights, form, statistics), losses.data<W>(), counted.data<W>(), IndexReport("cross_entropy")});
  });
}

void class_loss_gradient(const Tensor& x, const Tensor& targets, const Tensor& weights, const ClassLoss& form, const Tensor& statistics,
                         const Tensor& dlosses, double factor, const Tensor& dx) {
  for_dtype("class_loss_gradient", x.dtype(), [&]<class T>(T) {
    using W = Wide<T>;
    for_lanes_on_gpu("class_loss_gradient", {x.size(0), x.size(1), 1},
                     LossGradient<T>{class_rows<T>(x, targets, weights, form, statistics), data_or_null<W>(dlosses), static_cast<W>(factor),
                                     dx.data<T>()});
  });
}

}  // namespace spillway::kernels::cuda

#include "ops/losses/loss.h"

#include <algorithm>
#include <vector>

#include "autograd/kept_ops.h"
#include "kernels/accumulate.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/losses/cross_entropy.h"
#include "kernels/products/matmul.h"
#include "ops/dense.h"
#include "ops/refuse.h"

namespace spillway::ops {
namespace {

using autograd::Backward;
using autograd::Recorder;
using autograd::SavedTensor;

Tensor as_row(const Tensor& x) { return x.reshape({x.elems()}); }

void check(const char* op, const Variable& x, const Tensor& targets) {
  if (x.shape().rank() >= 2 && x.value.elems() == targets.elems() * x.shape()[-1] && x.value.elems() > 0) return;
  refuse(op, "rows [..., V] and one target for each row", {x.value, targets});
}

// Returns value_factor times the sum of the token losses. Backward multiplies the gradient of that sum by gradient_factor.
Variable sum_of_losses(const Variable& in, const Tensor& classes, double value_factor, double gradient_factor) {
  check("cross_entropy", in, classes);
  const Variable logits = dense(in);
  const Tensor targets = dense(classes);
  const Tensor rows = as_rows(logits.value), statistics = empty({rows.size(0), 2}, wide_dtype(rows.dtype()), "loss statistics"),
               total = empty({}, DType::f64, "loss");
  {
    const Tensor losses = empty({rows.size(0)}, statistics.dtype(), "token losses");
    kernels::cross_entropy(rows, targets, statistics, losses);
    kernels::sum_in_order(losses, value_factor, total);
  }
  Recorder r({logits});
  const auto kept_logits = r.save(logits), kept_targets = r.save(targets), kept_statistics = r.save(statistics);
  return r.output(total, [=](Backward& b) {
    kernels::cross_entropy_gradient(as_rows(b.saved(kept_logits)), b.saved(kept_targets), b.saved(kept_statistics),
                                    gradient_factor * b.gradient().item(), as_rows(b.target(0)));
  });
}

}  // namespace

Variable cross_entropy_sum(const Variable& logits, const Tensor& targets, double gradient_factor) {
  return sum_of_losses(logits, targets, 1, gradient_factor);
}

Variable cross_entropy_mean(const Variable& logits, const Tensor& targets) {
  const double mean = 1.0 / static_cast<double>(kernels::counted_targets(dense(targets)));
  return sum_of_losses(logits, targets, mean, mean);
}

namespace {

// A rectangular part of the logits: `rows` rows from `row` on and `columns` columns from `column` on.
// The part is stored from element `at` of the buffer on, and its rows lie `pitch` elements apart.
struct Piece {
  i64 row, rows, column, columns, pitch, at;
};

// Cuts the logits into pieces, row by row, and lays the pieces out one after the other.
struct Cut {
  std::vector<Piece> pieces;
  i64 all = 0, largest = 0;  // the numbers of elements of all pieces together, and of the largest piece
  bool kept = false;         // whether all pieces of the logits stay in memory from forward to backward

  Cut(i64 rows, i64 vocabulary, DType wide, const LogitsMemory& memory) {
    const kernels::LogitsCut cut = kernels::logits_cut(rows, vocabulary, wide, memory.piece_bytes);
    for (i64 row = 0; row < rows; row += cut.rows) {
      for (i64 column = 0; column < vocabulary; column += cut.columns) {
        Piece p{row, std::min(cut.rows, rows - row), column, std::min(cut.columns, vocabulary - column), 0, all};
        p.pitch = kernels::logits_pitch(p.columns);
        all += p.rows * p.pitch, largest = std::max(largest, p.rows * p.pitch);
        pieces.push_back(p);
      }
    }
    kept = pieces.size() == 1 || all * size_of(wide) <= memory.kept_bytes;
  }
};

// The fused head: the matrix product that gives the logits, and their cross entropy. The logits are in
// wide_dtype of x and are computed in pieces. Either all pieces are in memory at once, or one at a time.
struct Head {
  Tensor x, w, targets;
  i64 rows, vocabulary;
  double cap;  // the soft cap of the logits; 0 if there is none
  std::vector<Piece> pieces;
  bool kept;  // whether all pieces are in memory at once
  i64 buffer_elems = 0;

  Head(const Tensor& hidden, const Tensor& weight, const Tensor& wanted, const LogitsMemory& memory, double softcap)
      : x(as_rows(hidden)), w(weight), targets(as_row(wanted)), rows(x.size(0)), vocabulary(w.size(0)), cap(softcap) {
    Cut cut(rows, vocabulary, wide(), memory);
    pieces = std::move(cut.pieces);
    kept = cut.kept;
    buffer_elems = kept ? cut.all : cut.largest;
    if (kept) return;
    for (Piece& p : pieces) p.at = 0;
  }
  DType wide() const { return wide_dtype(x.dtype()); }
  Tensor logits_buffer() const { return empty({buffer_elems}, wide(), "logits"); }
  static Tensor memory_of(const Piece& p, const Tensor& buffer) {
    return buffer.slice(0, p.at, p.at + p.rows * p.pitch).reshape({p.rows, p.pitch});
  }
  static Tensor logits_in(const Piece& p, const Tensor& buffer) { return memory_of(p, buffer).slice(1, 0, p.columns); }
  // Returns the memory for the gradient of a piece's logits, which overwrites these logits. If the gradient's type is
  // narrower, each row of the gradient begins where the row of the logits begins. The columns of padding are included.
  Tensor gradients_in(const Piece& p, const Tensor& buffer) const {
    const Tensor memory = memory_of(p, buffer);
    if (memory.dtype() == x.dtype()) return memory;
    const i64 per_element = size_of(memory.dtype()) / size_of(x.dtype());
    return memory.reinterpret({p.rows, per_element * p.pitch}, x.dtype()).slice(1, 0, p.pitch);
  }

  Tensor x_of(const Piece& p) const { return x.slice(0, p.row, p.row + p.rows); }
  Tensor targets_of(const Piece& p) const { return targets.slice(0, p.row, p.row + p.rows); }
  Tensor w_of(const Piece& p) const { return w.slice(0, p.column, p.column + p.columns); }
  // Returns the piece's rows of w, followed by rows of zeros for the columns that pad the piece.
  Tensor padded_w(const Piece& p) const {
    if (p.pitch == p.columns) return w_of(p);
    const Tensor padded = zeros({p.pitch, w.size(1)}, w.dtype(), "logits' weight");
    kernels::copy(w_of(p), padded.slice(0, 0, p.columns));
    return padded;
  }

  void multiply(const Piece& p, const Tensor& buffer) const {
    const Tensor out = memory_of(p, buffer);
    const i64 bytes = kernels::matmul_workspace_bytes(p.rows, p.pitch, w.size(1), x.dtype(), out.dtype());
    kernels::matmul(x_of(p), padded_w(p).transpose(0, 1), {}, out, workspace(bytes));
    if (cap > 0) kernels::softcap(out, cap, out);
  }
  // Computes, for one piece, the gradient of x: the product of dlogits and w. The first piece of a range of rows writes the product to
  // `sum`; the other pieces of these rows add to it.
  void add_input_gradient(const Piece& p, const Tensor& dlogits, const Tensor& sum) const {
    const i64 bytes = kernels::matmul_workspace_bytes(p.rows, w.size(1), p.pitch, x.dtype(), sum.dtype());
    kernels::matmul(dlogits, padded_w(p), {}, sum, workspace(bytes), p.column == 0 ? kernels::Store::replace : kernels::Store::add);
  }
  // Computes dlogits^T x for one piece. The first piece of a range of columns
  // writes the product to dw; the other pieces of these columns add to it.
  void add_weight_gradient(const Piece& p, const Tensor& dlogits, const Tensor& dw) const {
    const Tensor to = dw.slice(0, p.column, p.column + p.columns);
    const bool padded = p.pitch > p.columns;
    const Tensor sum = padded ? empty({p.pitch, w.size(1)}, dw.dtype(), "logits' weight gradient") : to;
    const i64 bytes = kernels::matmul_workspace_bytes(p.pitch, w.size(1), p.rows, x.dtype(), dw.dtype());
    kernels::matmul(dlogits.transpose(0, 1), x_of(p), {}, sum, workspace(bytes),
                    p.row == 0 || padded ? kernels::Store::replace : kernels::Store::add);
    if (padded) p.row == 0 ? kernels::copy(sum.slice(0, 0, p.columns), to) : kernels::accumulate(to, sum.slice(0, 0, p.columns));
  }
};

// Writes the statistics of all rows and sums up their losses. Afterwards
// `buffer` holds all logits if they are kept, and the last piece otherwise.
void head_losses(const Head& head, const Tensor& buffer, const Tensor& statistics, const Tensor& total) {
  const Tensor losses = empty({head.rows}, statistics.dtype(), "token losses");
  for (const Piece& p : head.pieces) {
    head.multiply(p, buffer);
    kernels::cross_entropy_part(Head::logits_in(p, buffer), p.column, head.vocabulary, head.targets_of(p),
                                statistics.slice(0, p.row, p.row + p.rows), losses.slice(0, p.row, p.row + p.rows));
  }
  kernels::sum_in_order(losses, 1, total);
}

// Computes the gradients of x and w. A gradient whose dx or dw is undefined is not computed. If
// `converted` is set, the logits in `buffer` have already been overwritten with their gradient.
void head_gradients(const Head& head, const Tensor& buffer, const Tensor& statistics, double factor, bool converted, const Tensor& dx,
                    const Tensor& dw) {
  // The input's gradient is summed in wide_dtype over all pieces and rounded once.
  const bool sums_apart = dx.defined() && head.pieces[0].columns < head.vocabulary && dx.dtype() != head.wide();
  const Tensor sums = sums_apart ? empty(dx.shape(), head.wide(), "sums of the head's input gradient") : dx;
  for (const Piece& p : head.pieces) {
    if (!head.kept) head.multiply(p, buffer);
    const Tensor dlogits = head.gradients_in(p, buffer);
    if (!converted) {
      kernels::cross_entropy_part_gradient(Head::logits_in(p, buffer), p.column, head.vocabulary, head.targets_of(p),
                                           statistics.slice(0, p.row, p.row + p.rows), factor, dlogits, head.cap);
    }
    if (dx.defined()) head.add_input_gradient(p, dlogits, sums.slice(0, p.row, p.row + p.rows));
    if (dw.defined()) head.add_weight_gradient(p, dlogits, dw);
  }
  if (sums_apart) kernels::rounded_copy(sums, dx);
}

}  // namespace

i64 logits_again_bytes(i64 rows, i64 vocabulary, DType dtype, const LogitsMemory& memory) {
  const DType wide = wide_dtype(dtype);
  const Cut cut(rows, vocabulary, wide, memory);
  return cut.kept ? 0 : cut.all * size_of(wide);
}

Variable linear_cross_entropy(const Variable& in, const Variable& weight, const Tensor& classes, double gradient_factor,
                              const LogitsMemory& memory, double softcap) {
  check("linear_cross_entropy", in, classes);
  if (weight.shape().rank() != 2 || weight.shape()[1] != in.shape()[-1] || weight.dtype() != in.dtype())
    refuse("linear_cross_entropy", "x[..., C] and w[V, C] of the same dtype", {in.value, weight.value});
  const Variable x = dense(in), w = dense(weight);
  const Tensor targets = dense(classes);
  const Head head(x.value, w.value, targets, memory, softcap);
  const Tensor total = empty({}, DType::f64, "loss"), statistics = empty({head.rows, 2}, wide_dtype(x.dtype()), "loss statistics");
  Tensor logits = head.logits_buffer();
  head_losses(head, logits, statistics, total);
  Recorder r({x, w});
  const auto kept_x = r.save(x), kept_w = r.save(w), kept_targets = r.save(targets), kept_statistics = r.save(statistics);
  // Only linear_cross_entropy() reads the logits that it keeps, so backward may overwrite them with their gradient. If
  // backward runs in two parts, the second part uses this gradient. Logits that are not kept are computed again in each part.
  const SavedTensor kept_logits = head.kept ? r.save(logits) : SavedTensor();
  return r.output(total, [=](Backward& b) {
    const Head again(b.saved(kept_x), b.saved(kept_w), b.saved(kept_targets), memory, softcap);
    const Tensor dx = b.needs(0) ? as_rows(b.target(0)) : Tensor(), dw = b.target_if_needed(1);
    Tensor buffer = again.kept ? b.saved(kept_logits) : again.logits_buffer();
    if (const autograd::KeptOps* ops = autograd::KeptOps::current(); again.kept && ops != nullptr && ops->all()) {
      // the gradient overwrites a copy of the logits, since another backward() needs the logits themselves
      buffer = again.logits_buffer();
      kernels::copy(b.saved(kept_logits), buffer);
    }
    const bool converted = again.kept && b.again();
    head_gradients(again, buffer, b.saved(kept_statistics), gradient_factor * b.gradient().item(), converted, dx, dw);
  });
}

}  // namespace spillway::ops

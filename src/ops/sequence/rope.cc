#include "ops/sequence/rope.h"

#include "base/error.h"
#include "kernels/sequence/query_growth.h"
#include "kernels/sequence/rope.h"
#include "ops/dense.h"
#include "ops/layout/shape.h"

namespace spillway::ops {

using autograd::Backward;
using autograd::Recorder;

namespace {

void check(const char* op, const Shape& x, const Shape& positions, size_t frequencies) {
  const bool fits = x.rank() == 4 && positions.elems() == x[0] * x[1] && x[3] >= 2 * static_cast<i64>(frequencies);
  if (fits) return;
  throw Error(ErrorCode::bug, std::string("[") + op + "] expected x[B, T, H, D], positions[B, T] and at most D/2 frequencies, got " +
                                  to_string(x) + ", " + to_string(positions) + " and " + std::to_string(frequencies));
}

}  // namespace

Variable rope(const Variable& in, const Tensor& places, std::span<const double> inverse_frequencies, double attention_scaling) {
  const Variable x = dense(in);
  const Tensor positions = dense(places);
  check("rope", x.shape(), positions.shape(), inverse_frequencies.size());
  const Tensor y = empty(x.shape(), x.dtype(), "rope");
  kernels::rope(x.value, positions, inverse_frequencies, attention_scaling, false, y);
  Recorder r({x});
  const auto kept_positions = r.save(positions);
  const std::vector<double> frequencies(inverse_frequencies.begin(), inverse_frequencies.end());
  return r.output(
      y, [=](Backward& b) { kernels::rope(b.gradient(), b.saved(kept_positions), frequencies, attention_scaling, true, b.target(0)); });
}

Variable rope_interleaved(const Variable& x, const Tensor& positions, std::span<const double> inverse_frequencies,
                          double attention_scaling) {
  const Shape& all = x.shape();
  check("rope_interleaved", all, positions.shape(), inverse_frequencies.size());
  const i64 pairs = static_cast<i64>(inverse_frequencies.size()), turned = 2 * pairs;
  const auto turn = [&](const Variable& heads) {
    const i64 b = all[0], t = all[1], h = all[2];
    const Variable halves = reshape(permute(reshape(heads, {b, t, h, pairs, 2}), {0, 1, 2, 4, 3}), {b, t, h, turned});
    const Variable y = rope(halves, positions, inverse_frequencies, attention_scaling);
    return reshape(permute(reshape(y, {b, t, h, 2, pairs}), {0, 1, 2, 4, 3}), {b, t, h, turned});
  };
  if (turned == 0) return x;
  if (turned == all[3]) return turn(x);
  return concat({turn(slice(x, 3, 0, turned)), slice(x, 3, turned, all[3])}, 3);
}

Variable grown(const Variable& in, const Tensor& places, double growth, i64 original) {
  const Variable x = dense(in);
  const Tensor positions = dense(places);
  check("grown", x.shape(), positions.shape(), 0);
  const Tensor y = empty(x.shape(), x.dtype(), "grown queries");
  kernels::grow_queries(x.value, positions, growth, original, y);
  Recorder r({x});
  const auto kept_positions = r.save(positions);
  return r.output(y, [=](Backward& b) { kernels::grow_queries(b.gradient(), b.saved(kept_positions), growth, original, b.target(0)); });
}

}  // namespace spillway::ops

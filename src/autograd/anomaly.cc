#include "autograd/anomaly.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "kernels/layout/layout.h"
#include "tensor/create.h"

namespace spillway::autograd {
namespace {

thread_local AnomalyGuard* innermost = nullptr;

// Returns whether all numbers are finite. A number whose exponent bits are all set is a NaN or an infinity.
template <class Bits>
bool all_finite(const Tensor& t, Bits exponent) {
  const auto* bits = reinterpret_cast<const Bits*>(t.raw());
  std::atomic<bool> finite = true;
  constexpr i64 kGrain = i64{1} << 16;
  Stream::current().for_ranges(t.elems(), kGrain, [&](i64 begin, i64 end) {
    Bits bad = 0;
    for (i64 i = begin; i < end; ++i) bad = static_cast<Bits>(bad | static_cast<Bits>((bits[i] & exponent) == exponent));
    if (bad != 0) finite = false;
  });
  return finite;
}

Tensor contiguous(const Tensor& t) {
  if (t.is_contiguous()) return t;
  const Tensor copy = empty(t.shape(), t.dtype(), "contiguous copy");
  kernels::copy_view(t, copy);
  return copy;
}

bool is_finite(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype()) || t.device().is_meta() || t.elems() == 0) return true;
  Tensor here = contiguous(t);
  if (here.device().is_cuda()) here = to_host(here);
  switch (t.dtype()) {
    case DType::f64:
      return all_finite(here, u64{0x7ff0000000000000});
    case DType::bf16:
      return all_finite(here, u16{0x7f80});
    case DType::f16:
      return all_finite(here, u16{0x7c00});
    default:
      return all_finite(here, u32{0x7f800000});
  }
}

struct Look {
  i64 nans = 0, infinities = 0, first = -1;
  double lowest = INFINITY, highest = -INFINITY;
};

Look look_at(const Tensor& t) {
  Look look;
  if (!is_floating(t.dtype())) return look;
  const std::vector<double> values = values_of(t);
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    look.nans += std::isnan(x);
    look.infinities += std::isinf(x);
    if (!std::isfinite(x)) {
      if (look.first < 0) look.first = static_cast<i64>(i);
      continue;
    }
    look.lowest = std::min(look.lowest, x);
    look.highest = std::max(look.highest, x);
  }
  return look;
}

std::string place(const Shape& shape, i64 element) {
  std::string text;
  for (int axis = shape.rank() - 1; axis >= 0; element /= shape[axis--])
    text = fmt::format("{}{}{}", element % shape[axis], text.empty() ? "" : ", ", text);
  return "[" + text + "]";
}

std::string described(const std::string& name, const Tensor& t) {
  std::string text = fmt::format("\n  {}: {} {}", name, to_string(t.dtype()), to_string(t.shape()));
  if (!is_floating(t.dtype())) return text;
  const Look look = look_at(t);
  const bool any = look.lowest <= look.highest;
  if (look.first < 0) return text + (any ? fmt::format(", all finite, from {:.6g} to {:.6g}", look.lowest, look.highest) : "");
  text += fmt::format(", {} NaN and {} infinite of {} elements, the first at {}", look.nans, look.infinities, t.elems(),
                      place(t.shape(), look.first));
  return text + (any ? fmt::format("; the finite elements from {:.6g} to {:.6g}", look.lowest, look.highest) : "");
}

std::string headline(const std::string& where, const char* pass, const char* op, const std::string& layer) {
  return fmt::format("[anomaly] {}{}the {} of {}{} is the first whose result is not finite", where, where.empty() ? "" : ": ", pass, op,
                     layer);
}

// Returns whether an op's result is not finite only because one of its inputs, such as a mask, holds infinities.
bool are_of_a_mask(const Tensor& output, std::span<const Variable> inputs) {
  if (look_at(output).nans > 0) return false;
  for (const Variable& input : inputs) {
    if (input.value.defined() && !input.weight && look_at(input.value).infinities > 0) return true;
  }
  return false;
}

}  // namespace

AnomalyGuard::AnomalyGuard(Options options) : options_(std::move(options)), outer_(std::exchange(innermost, this)) {}
AnomalyGuard::~AnomalyGuard() { innermost = outer_; }
AnomalyGuard* AnomalyGuard::current() { return innermost; }

std::string AnomalyGuard::check_output(const char* op, const Tensor& output, std::span<const Variable> inputs, bool infinities) {
  std::string layer = last_layer_.empty() ? "" : " after " + last_layer_;
  for (const Variable& input : inputs) {
    const auto found = input.weight ? names_.find(input.value.storage().get()) : names_.end();
    if (found == names_.end()) continue;
    last_layer_ = found->second.substr(0, found->second.rfind('.'));
    layer = " in " + last_layer_;
    break;
  }
  if (is_finite(output) || (infinities && look_at(output).nans == 0) || are_of_a_mask(output, inputs)) return layer;
  std::string report = headline(options_.where, "forward", op, layer) + described("its result", output);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Variable& input = inputs[i];
    if (!input.value.defined()) continue;
    const auto found = names_.find(input.value.storage().get());
    report += described(fmt::format("its input {}{}", i, found == names_.end() ? "" : ", " + found->second), input.value);
  }
  throw Error(ErrorCode::numbers, report);
}

void AnomalyGuard::check_gradients(const Made& made) const {
  for (const auto& [input, gradient] : made.gradients) {
    if (is_finite(gradient)) continue;
    std::string report = headline(options_.where, "backward", made.op, made.layer);
    report += described(fmt::format("gradient of its input {}", input), gradient) + described("gradient of its output", made.gradient);
    for (size_t i = 0; i < made.saved.size(); ++i) {
      if (made.saved[i].defined()) report += described(fmt::format("tensor {} that forward saved", i), made.saved[i]);
    }
    throw Error(ErrorCode::numbers, report);
  }
}

}  // namespace spillway::autograd

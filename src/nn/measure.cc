#include "nn/measure.h"

#include <fmt/format.h>

#include "base/units.h"
#include "device/arena.h"
#include "nn/eager.h"
#include "tensor/flop_count.h"

namespace spillway::nn {
namespace {

// Allocates the gradients of parameters in a separate arena (memory area), so that they do not count as activations.
class Apart final : public autograd::GradientSink {
 public:
  explicit Apart(const Stream& stream) : stream_(stream) {}
  Tensor target(u32, u8, const Shape& shape, DType dtype) override {
    const StreamScope scope(stream_);
    return empty(shape, dtype, "gradient");
  }
  void done(u32, u8) override {}

 private:
  const Stream& stream_;
};

}  // namespace

std::string ModelSize::text() const {
  return fmt::format(
      "parameters    {} ({} trained), {}\ngradients     {}\nactivations   {} kept from forward to backward, {} at most\n"
      "FLOPs         {:.4g} forward, {:.4g} backward\n",
      parameters, trained_parameters, format_bytes(parameter_bytes), format_bytes(gradient_bytes), format_bytes(kept_bytes),
      format_bytes(peak_bytes), forward_flops, backward_flops);
}

ModelSize measure(const std::function<Sequential()>& build, i64 rows, i64 positions, Device::Kind on) {
  Arena held, activations;
  const Stream holding{Device::meta(on), nullptr, &held}, working{Device::meta(on), nullptr, &activations};
  const StreamScope scope(holding);
  const Sequential model = build();
  const EagerParameters memory(model);
  MicroBatch batch = empty_batch(model, rows, positions);
  batch.counted_targets = rows * positions;
  ModelSize size;
  for (const auto& parameter : model.parameters) {
    size.parameters += parameter->elems();
    size.parameter_bytes += parameter->value().bytes();
    if (parameter->frozen) continue;
    size.trained_parameters += parameter->elems();
    size.gradient_bytes += parameter->elems() * size_of(wide_dtype(parameter->dtype));
  }
  const StreamScope work(working);
  Apart sink(holding);
  autograd::Tape tape(&sink);
  FlopCount all;
  {
    const Variable loss = run(model, {.batch = &batch, .tape = &tape, .loss_factor = 1.0 / static_cast<double>(rows * positions)});
    size.forward_flops = all.flops();
    size.kept_bytes = tape.saved_bytes();
    if (loss.needs_gradient()) loss.backward();
  }
  size.backward_flops = all.flops() - size.forward_flops;
  size.peak_bytes = activations.peak_bytes();
  return size;
}

}  // namespace spillway::nn

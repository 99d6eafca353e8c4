#include "trainer/ranks/attention_choice.h"

#include <fmt/format.h>

#include "base/units.h"
#include "device/gpu_queue.h"
#include "device/stream.h"

namespace spillway::trainer {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::usage, fmt::format("[--attention] {}; leave out --attention cudnn", why));
}

}  // namespace

void check_attention(const ResourceConfig& config, const kernels::AttentionShape& shape, double dropout) {
  if (*config.device == "cpu") refuse("expected --device cuda for cudnn, got cpu");
  if (!is_half(shape.dtype)) refuse("expected --precision bf16 or fp16 for cudnn, got another");
  if (dropout > 0) refuse(fmt::format("expected no dropout of attention probabilities for cudnn, got {}: give --dropout 0", dropout));
  if (const std::string why = kernels::attention_shape_problem(shape); !why.empty()) refuse(why + " for cudnn");
}

Error with_attention_workspace(const Error& refused, const kernels::AttentionShape& shape) {
  return Error(refused.code(), fmt::format("{}\nThe workspace of --attention cudnn takes {} of the device's memory; --attention own "
                                           "needs none",
                                           refused.what(), format_bytes(kernels::attention_library_bytes(shape))));
}

std::string prepare_attention(const kernels::AttentionShape& shape, const ChosenDevice& device, MemoryPool& pool, const Peers& peers,
                              const std::string& made_with) {
  const auto prepare = [&](const std::string& chosen) {
    use_device(device.device);
    const Stream stream{.device = device.device, .memory = &pool};
    const StreamScope scope(stream);
    return kernels::prepare_attention(shape, chosen);
  };
  std::string record;
  peers.together([&] {
    if (peers.first()) record = prepare(made_with);
  });
  const std::string of_first = peers.from_first(record);
  peers.together([&] {
    if (!peers.first()) record = prepare(of_first);
    if (record == of_first) return;
    throw Error(ErrorCode::usage,
                fmt::format("[--attention] expected the same cuDNN version and GPU model on all ranks, got {} on rank 0 and {} on rank {}",
                            of_first, record, peers.rank()));
  });
  return record;
}

}  // namespace spillway::trainer

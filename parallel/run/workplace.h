// A Workplace holds everything that the parts of a rank work with: memory, state, device and other
// ranks. It is made once, from the plan and the resources, in the order of the members.
#pragma once
#include "parallel/device/rank_device.h"
#include "parallel/run/other_ranks.h"
#include "parallel/run/rank_memory.h"
#include "parallel/run/shown_weights.h"

namespace spillway::parallel {

struct Workplace {
  Workplace(const nn::Sequential& model, const Plan& p, const Resources& resources)
      : plan(p),
        state(p, resources),
        memory(p, state, resources),
        weights(model, p, state),
        stepper(p, state),
        device(make_rank_device(p, state, stepper, memory.activations(), resources)),
        ranks(p, resources) {}

  const GpuQueue* queue(Lane lane) const { return device.lanes->queue(lane); }
  const RankStreams& streams() const { return device.streams; }
  const optim::StateFormat& format() const { return plan.scheduling.format; }
  const Sharding& sharding() const { return plan.scheduling.sharding; }
  /// Adds to the traffic counters what an instruction itself reads from and writes to host memory.
  void count_host(const Instruction& i) {
    constexpr auto kHost = static_cast<size_t>(Tier::host);
    state.traffic().read_bytes[kHost] += i.read_bytes[kHost];
    state.traffic().written_bytes[kHost] += i.written_bytes[kHost];
  }

  const Plan& plan;
  ModelState state;
  RankMemory memory;
  ShownWeights weights;
  Stepper stepper;
  RankDevice device;
  OtherRanks ranks;
};

}  // namespace spillway::parallel

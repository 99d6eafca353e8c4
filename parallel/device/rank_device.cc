#include "parallel/device/rank_device.h"

#include "parallel/device/gpu_lanes.h"
#include "parallel/device/only_queued.h"

namespace spillway::parallel {
namespace {

RankDevice cpu_device(const Plan& plan, ModelState& state, Arena& activations, const Resources& resources) {
  RankStreams streams;
  streams.compute = {.threads = resources.threads, .memory = &activations};
  streams.inputs = streams.made = {.threads = resources.threads, .memory = resources.device};
  streams.step = streams.compute;
  streams.step_beside = {.memory = resources.device};
  return {streams, make_cpu_copies(state), make_cpu_sums(plan), std::make_unique<CpuLanes>()};
}

RankDevice gpu_device(const Plan& plan, ModelState& state, const Stepper& stepper, Arena& activations, const Resources& resources) {
  const Stream work{.device = Device::cuda(resources.gpu), .threads = resources.threads, .memory = resources.device};
  auto lanes = std::make_unique<GpuLanes>(
      work, [&plan, &stepper](const Instruction& i) { return only_queued(i, plan, stepper); },
      [&plan, &stepper](const Instruction& i) { return leaves_on_queue(i, plan, stepper); });
  const auto on_queue = [&](Lane lane) {
    Stream stream = work;
    stream.queue = lanes->queue(lane)->handle();
    return stream;
  };
  RankStreams streams;
  streams.compute = on_queue(Lane::compute);
  streams.compute.memory = &activations;
  streams.compute.tf32 = resources.tf32;
  streams.inputs = on_queue(Lane::data);
  streams.made = {.threads = resources.threads, .memory = &MemoryPool::heap()};
  streams.step = streams.step_beside = on_queue(Lane::optimizer);
  // the two streams for optimizer updates run Muon's matrix products, so they need the user's choice of TF32
  streams.step.tf32 = streams.step_beside.tf32 = resources.tf32;
  auto sums = make_gpu_sums(plan, *lanes, *resources.device, *resources.host);
  auto copies = make_gpu_copies(plan, state, *lanes, *resources.host);
  return {streams, std::move(copies), std::move(sums), std::move(lanes)};
}

}  // namespace

RankDevice make_rank_device(const Plan& plan, ModelState& state, const Stepper& stepper, Arena& activations, const Resources& resources) {
  return plan.on_gpu() ? gpu_device(plan, state, stepper, activations, resources) : cpu_device(plan, state, activations, resources);
}

}  // namespace spillway::parallel

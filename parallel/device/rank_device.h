// What a rank computes on, a CPU or a GPU: chosen once, from the plan; whatever differs between the two is behind this. Numbers do not.
#pragma once
#include "device/arena.h"
#include "device/stream.h"
#include "parallel/device/device_copies.h"
#include "parallel/device/device_sums.h"
#include "parallel/device/lanes.h"
#include "parallel/state/stepper.h"

namespace spillway::parallel {

struct RankStreams {
  Stream compute;  // blocks, and what is done with their gradients
  Stream inputs;   // memory of the device for micro-batches
  Stream made;     // memory that the CPU writes, for making them: on a CPU the same
  Stream step;     // Steps that nothing runs beside
  // Steps that run beside computing: on a CPU one thread, so that the others stay with the compute lane.
  Stream step_beside;
};

struct RankDevice {
  RankStreams streams;
  std::unique_ptr<DeviceCopies> copies;
  std::unique_ptr<DeviceSums> sums;
  std::unique_ptr<Lanes> lanes;  // last, to go first: after an error work may stand on its queues that uses the rest
};

/// Takes the memory that the plan says; what is given outlives it. `activations`: of the compute lane.
RankDevice make_rank_device(const Plan& plan, ModelState& state, const Stepper& stepper, Arena& activations, const Resources& resources);

}  // namespace spillway::parallel

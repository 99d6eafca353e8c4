// A RankDevice is the device on which a rank computes, a CPU or a GPU. It is chosen once, from the plan. All
// differences between the two are behind this interface, and the results of training do not differ.
#pragma once
#include "device/arena.h"
#include "device/stream.h"
#include "parallel/device/device_copies.h"
#include "parallel/device/device_sums.h"
#include "parallel/device/lanes.h"
#include "parallel/state/stepper.h"

namespace spillway::parallel {

struct RankStreams {
  Stream compute;  // for running blocks and for work on their gradients
  Stream inputs;   // allocates the device memory that holds micro-batches
  Stream made;     // allocates memory that the CPU can write, for making micro-batches; on a CPU the same as `inputs`
  Stream step;     // for optimizer Steps while nothing else runs
  // Runs optimizer Steps while blocks compute. On a CPU this stream has a single
  // thread, so that the other threads remain free for the blocks.
  Stream step_beside;
};

struct RankDevice {
  RankStreams streams;
  std::unique_ptr<DeviceCopies> copies;
  std::unique_ptr<DeviceSums> sums;
  std::unique_ptr<Lanes> lanes;  // declared last and so destroyed first: after an error its queues may still use the other members
};

/// Makes the device and allocates the memory that the plan lists. All arguments must outlive
/// the result. `activations` is the memory of the thread that computes blocks.
RankDevice make_rank_device(const Plan& plan, ModelState& state, const Stepper& stepper, Arena& activations, const Resources& resources);

}  // namespace spillway::parallel

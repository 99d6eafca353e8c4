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
  Stream compute;  // the stream for running blocks and for work on their gradients
  Stream inputs;   // a stream that allocates the device memory of micro-batches
  Stream made;     // a stream that allocates memory in which the CPU makes micro-batches; on a CPU the same as `inputs`
  Stream step;     // the stream for optimizer updates while nothing else runs
  // The stream for optimizer updates while blocks compute. On a CPU it has a single thread, so that the other threads remain free for the
  // blocks.
  Stream step_beside;
};

struct RankDevice {
  RankStreams streams;
  std::unique_ptr<DeviceCopies> copies;
  std::unique_ptr<DeviceSums> sums;
  std::unique_ptr<Lanes> lanes;  // declared last and so destroyed first: after an error, its queues may still use the other members
};

/// Makes the device and allocates the memory that the plan lists. All arguments must outlive
/// the result. `activations` is the memory of the thread that computes blocks.
RankDevice make_rank_device(const Plan& plan, ModelState& state, const Stepper& stepper, Arena& activations, const Resources& resources);

}  // namespace spillway::parallel

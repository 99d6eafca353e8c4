// How the GPUs of several ranks meet: from GPU to GPU over NCCL, or through host memory. What --communicator says comes to, the same on all
// ranks.
#pragma once
#include <algorithm>
#include <string>

#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/node/launcher.h"
#include "app/ranks/peers.h"
#include "device/device.h"
#include "device/device_query.h"

namespace spillway::app {

/// What is not planned with of a GPU's memory where NCCL, whose buffers no pool counts, runs on it: as much as was seen, and no less than
/// this, or on a small GPU a 32nd.
constexpr i64 kLeastNcclBytes = 512 * kMiB;

struct GpuMeeting {
  bool nccl = false;
  i64 nccl_bytes = 0;  // that NCCL takes, as was seen
  double timeout_s = 60;
  std::string text;  // for the log; empty where no GPUs meet

  /// For which NCCL may take to let go of a GPU, after an error.
  double abort_s() const { return std::min(15.0, timeout_s); }
};

/// A rank's GPU, or its CPU, as far as it is of importance here.
struct MeetingPoint {
  Device device;
  bool shared = false;  // by several ranks
};

/// What NCCL takes of a rank's GPU: by what a communicator took that all ranks are in, and each pair that sends.
i64 nccl_memory(const RanksConfig& config, i64 communicator_bytes, i64 pair_bytes);

/// nccl: NCCL, or Error(usage) on all ranks in one line with the cure. auto: NCCL where each rank has a GPU of its own and bytes have gone
/// over it from each to all. All ranks call it together.
GpuMeeting agree_on_meeting(const RanksConfig& config, const MeetingPoint& mine, const Peers& peers);
/// What `plan` takes it to be, which meets nobody. Error(usage) for nccl without GPUs.
GpuMeeting expected_meeting(const RanksConfig& config, const Device& device, const GpuReport& report);

/// Before anything else uses a GPU. Of a node with several ranks the first one looks whether its GPUs reach each other (probe_peers());
/// where they do not, NCCL is told not to have them try. Every rank that may talk over NCCL has all kernels loaded at the start and the
/// most queues that the driver gives, unless the environment says otherwise: what loads while an exchange is on the GPU may wait for it,
/// and queues that share a connection wait for each other. Error(io) where the driver hangs.
void keep_nccl_from_hanging(const RanksConfig& config, const Launcher& launcher, Console& console);

}  // namespace spillway::app

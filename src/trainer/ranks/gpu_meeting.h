// Resolves --communicator for ranks on GPUs. The ranks exchange data either directly from GPU to GPU over NCCL, or through host memory. All
// ranks make the same choice.
#pragma once
#include <algorithm>
#include <string>

#include "device/device.h"
#include "device/device_query.h"
#include "trainer/node/launcher.h"
#include "trainer/node/messages.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// No memory pool counts NCCL's buffers on a GPU. A plan leaves at least kLeastNcclBytes free for them, or on a
/// small GPU a 32nd of its free memory. If a trial shows that NCCL takes more, that many bytes are left free.
constexpr i64 kLeastNcclBytes = 512 * kMiB;

/// How the GPUs of the ranks exchange data.
struct GpuMeeting {
  bool nccl = false;      // true: GPUs exchange data over NCCL; false: through host memory
  i64 nccl_bytes = 0;     // GPU memory that NCCL will take, estimated from a trial
  double timeout_s = 60;  // seconds that a rank waits for the other ranks
  std::string text;       // one line for the log; empty if no GPUs exchange data

  /// Returns the seconds that NCCL may take to release the GPU after an error.
  double abort_s() const { return std::min(15.0, timeout_s); }
};

/// The device of one rank, and whether other ranks use the device too.
struct MeetingPoint {
  Device device;
  bool shared = false;  // true if several ranks use this GPU
};

/// Estimates how many bytes NCCL takes of a rank's GPU. Both byte counts come from a trial: `communicator_bytes` is what
/// one communicator of all ranks takes, and `pair_bytes` what each pair of ranks that send to each other takes in addition.
i64 nccl_memory(const RanksConfig& config, i64 communicator_bytes, i64 pair_bytes);

/// Collective. Decides how the GPUs exchange data. With --communicator nccl the result is NCCL, or all ranks throw Error(usage), in one
/// line that says what to change. With --communicator auto the result is NCCL if no two ranks share a GPU and a trial succeeds. In the
/// trial each rank sends bytes to all other ranks.
GpuMeeting agree_on_meeting(const RanksConfig& config, const MeetingPoint& mine, const Peers& peers);
/// Predicts the result of agree_on_meeting() for the command `plan`, which runs without other
/// ranks. Throws Error(usage) for --communicator nccl if the ranks do not compute on GPUs.
GpuMeeting expected_meeting(const RanksConfig& config, const Device& device, const GpuReport& report);

/// Sets environment variables that keep NCCL from deadlocks. Must be called before anything else uses a GPU. On a node
/// with several ranks, local rank 0 tests whether the GPUs reach each other's memory (probe_peers()). If they do not, NCCL
/// is told not to try. Every rank that may use NCCL loads all its kernels at the start and asks for the most hardware
/// queues, unless the environment says otherwise. Otherwise loading a kernel could wait for a collective that runs on the
/// GPU, and streams that share a hardware queue could wait for each other. Throws Error(io) if the driver hangs.
void keep_nccl_from_hanging(const RanksConfig& config, const Launcher& launcher, Messages& messages);

}  // namespace spillway::trainer

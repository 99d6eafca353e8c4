// Resolves --device on this node: each rank computes on the CPU or on one of the node's GPUs. What is known about the GPUs comes from
// device/device_query.h.
#pragma once
#include <optional>
#include <string>

#include "device/device.h"
#include "device/device_query.h"
#include "trainer/node/grant.h"
#include "trainer/ranks/gpu_meeting.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Bytes of a GPU's free memory that a plan never uses: they are left for the driver, for kernels and for libraries.
constexpr i64 kGpuReserveBytes = 512 * kMiB;

struct ChosenDevice {
  Device device;
  std::string name = "cpu";       // for messages, such as "cuda:0, NVIDIA H200"
  std::string model;              // the GPU's product name, on which the bits of its results depend; empty for the CPU
  std::optional<i64> free_bytes;  // GPU memory that this rank may plan with; empty for a CPU, or when planning without the GPU
  GpuMeeting meeting;             // how GPUs of several ranks exchange data
};

/// Returns the index of the GPU in a --device value: 2 for "cuda:2". Empty if the value has no index, as "cuda" and "cpu".
std::optional<int> asked_gpu(const std::string& device);

/// Opens the GPU that a rank would use and returns what is known about all GPUs. It is the GPU that --device names, else the one with index
/// `local_rank` modulo the number of GPUs. With --device cpu it opens none and reports none.
GpuReport look_at_gpus(const ResourceConfig& config, int local_rank);

/// Fills in what `config` leaves open: the device ("cuda" if a GPU can be used here, else "cpu"), the precision, which depends on the
/// device, and the tf32 settings that the precision implies. Throws Error(usage) if tf32 is asked for but cannot be used.
void resolve_device(ResourceConfig& config, const GpuReport& report);

/// Returns the device of the rank at `place`. Call it after resolve_device(). Throws Error(usage) if the GPU does not exist or this build
/// has no code for it, and Error(io) if it cannot be used now; the message is one line that says what to do. With `planning` it also works
/// on a node without GPUs.
ChosenDevice choose_device(const ResourceConfig& config, const GpuReport& report, const RankPlace& place, bool planning = false);

/// Returns the memory budgets of a rank on a GPU: by default all free GPU memory and all host memory of `grant`. `device_bytes` and
/// `host_bytes` are the budgets that the user gave. Throws Error(refused) if they are more than the GPU and the node have. If the GPU is
/// not on this node, the size of its memory is known only from `device_bytes`; throws Error(usage) if that is not given.
Budgets gpu_budgets(const MemoryGrant& grant, const ChosenDevice& gpu, std::optional<i64> device_bytes, std::optional<i64> host_bytes);

/// Returns a name for a GPU that is unique across nodes: two ranks get equal names only if they share one GPU (or one MIG slice of it).
std::string gpu_of_node(const std::string& host_name, const GpuFacts& gpu);

/// Collective, to be called after resolve_device(). Returns the device of this rank and how the ranks' GPUs exchange data. Ranks that share
/// a GPU get equal parts of its free memory.
ChosenDevice device_on_ranks(const RanksConfig& config, const Peers& peers);

}  // namespace spillway::trainer

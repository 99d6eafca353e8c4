// Resolves --device on this node: each rank computes on the CPU or on one of
// the node's GPUs. The facts about the GPUs come from device/device_query.h.
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

/// kGpuReserveBytes is the part of a GPU's free memory that a plan never uses. It is left for the driver, for kernels and for libraries.
constexpr i64 kGpuReserveBytes = 512 * kMiB;

struct ChosenDevice {
  Device device;
  std::string name = "cpu";       // for messages, such as "cuda:0, NVIDIA H200"
  std::string model;              // the GPU's product name, on which the rounding of results depends; empty for the CPU
  std::optional<i64> free_bytes;  // GPU memory that the plan of this rank may use; empty for a CPU, or when a plan is made without the GPU
  GpuMeeting meeting;             // how the GPUs of several ranks exchange data
};

/// Returns the index of the GPU in a --device value: 2 for "cuda:2". The result is empty if the value has no index, as in "cuda" or "cpu".
std::optional<int> asked_gpu(const std::string& device);

/// Opens the GPU that a rank would use and returns what is known about all GPUs. The GPU is the one that --device names; if it
/// names none, its index is `local_rank` modulo the number of GPUs. With --device cpu no GPU is opened and none is reported.
GpuReport look_at_gpus(const ResourceConfig& config, int local_rank);

/// Fills in what `config` leaves open: the device ("cuda" if this node has a usable GPU, otherwise "cpu"), the precision, which depends
/// on the device, and the tf32 settings, which the precision implies. Throws Error(usage) if tf32 is asked for but cannot be used.
void resolve_device(ResourceConfig& config, const GpuReport& report);

/// Returns the device of the rank at `place`. Must be called after resolve_device(). Throws Error(usage) if
/// the GPU does not exist or this build has no code for it, and Error(io) if the GPU cannot be used now. The
/// message is one line that says what to do. With `planning` the function also works on a node without GPUs.
ChosenDevice choose_device(const ResourceConfig& config, const GpuReport& report, const RankPlace& place, bool planning = false);

/// Returns the memory budgets of a rank on a GPU: by default all free GPU memory and all host memory of `grant`. `device_bytes`
/// and `host_bytes` are the budgets that the user gave. Throws Error(refused) if they exceed what the GPU and the node have. The
/// memory of a GPU on another node is known only from `device_bytes`; without `device_bytes` for such a GPU, throws Error(usage).
Budgets gpu_budgets(const MemoryGrant& grant, const ChosenDevice& gpu, std::optional<i64> device_bytes, std::optional<i64> host_bytes);

/// Returns a name for a GPU that is unique across nodes. Two ranks get equal names only if they share one GPU (or one MIG slice of a GPU).
std::string gpu_of_node(const std::string& host_name, const GpuFacts& gpu);

/// Collective, to be called after resolve_device(). Returns the device of this rank and how the ranks' GPUs exchange data. Ranks that share
/// a GPU get equal parts of its free memory.
ChosenDevice device_on_ranks(const RanksConfig& config, const Peers& peers);

}  // namespace spillway::trainer

// What --device comes to on this node: the CPU, or one of its GPUs for each rank. Facts of GPUs come from device/device_query.h.
#pragma once
#include <optional>
#include <string>

#include "app/flags/config.h"
#include "app/node/grant.h"
#include "app/ranks/gpu_meeting.h"
#include "app/ranks/peers.h"
#include "device/device.h"
#include "device/device_query.h"

namespace spillway::app {

/// What is never planned with of a GPU's free memory: for the driver, kernels' own needs and libraries.
constexpr i64 kGpuReserveBytes = 512 * kMiB;

struct ChosenDevice {
  Device device;
  std::string name = "cpu";       // "cuda:0, NVIDIA H200"
  std::string model;              // of a GPU: what its bits depend on
  std::optional<i64> free_bytes;  // of a GPU, for this rank to plan with; unknown where a plan is made without the GPU
  GpuMeeting meeting;             // of several ranks on GPUs
};

/// Of "cuda:2" the 2; none of what names no GPU of several.
std::optional<int> asked_gpu(const std::string& device);

/// What is known of GPUs after opening the one that a rank would take: of so many a node the local rank's, or the one that --device names.
/// With --device cpu nobody looks.
GpuReport look_at_gpus(const ResourceConfig& config, int local_rank);

/// Writes into `config` what was left open: the device ("cpu" or "cuda": the best that can be used here) and with it the precision, and
/// what tf32 comes to. Error(usage) on tf32 where it cannot be.
void resolve_device(ResourceConfig& config, const GpuReport& report);

/// Of a rank, after resolve_device(). Throws Error(usage) for a GPU that is not there or that this build has no code for, and Error(io) for
/// one that cannot be used now: in one line with the cure. `planning`: no GPU is needed.
ChosenDevice choose_device(const ResourceConfig& config, const GpuReport& report, const RankPlace& place, bool planning = false);

/// The budgets of a rank on a GPU: its free memory, and the grant. Those given must not be more, where the GPU is one of this node's.
/// Error(refused); Error(usage) where nothing tells the GPU's.
Budgets gpu_budgets(const MemoryGrant& grant, const ChosenDevice& gpu, std::optional<i64> device_bytes, std::optional<i64> host_bytes);

/// Equal where two ranks share a GPU, or a slice of one.
std::string gpu_of_node(const std::string& host_name, const GpuFacts& gpu);

/// Of all ranks, each its own; those that share a GPU share its memory. And how these GPUs meet. All call it together, after
/// resolve_device().
ChosenDevice device_on_ranks(const RanksConfig& config, const Peers& peers);

}  // namespace spillway::app

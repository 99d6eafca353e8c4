#include "trainer/ranks/device_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "kernels/products/fp8.h"
#include "kernels/products/gpu_libraries.h"
#include "kernels/products/instruction_sets.h"
#include "kernels/sequence/attention_library.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

constexpr const char* kCuda = "cuda";

bool usable(const GpuFacts& gpu) { return gpu.problem.empty(); }

const GpuFacts& chosen_gpu(const std::string& device, const GpuReport& report, const RankPlace& place) {
  if (report.gpus.empty()) {
    throw Error(ErrorCode::usage,
                fmt::format("[--device] expected a GPU for {}, got none: {}; give --device cpu, or look at `spillway doctor`", device,
                            report.problem));
  }
  const auto count = static_cast<int>(report.gpus.size());
  const std::optional<int> asked = asked_gpu(device);
  if (asked && place.ranks > 1)
    throw Error(ErrorCode::usage,
                fmt::format("[--device] expected cuda for {} ranks, because each rank takes its own GPU, got {}", place.ranks, device));
  if (asked && *asked >= count)
    throw Error(ErrorCode::usage,
                fmt::format("[--device] expected one of the {} visible GPUs, cuda:0 to cuda:{}, got {}", count, count - 1, device));
  return report.gpus[static_cast<size_t>(asked.value_or(place.local_rank % count))];
}

}  // namespace

std::optional<int> asked_gpu(const std::string& device) {
  const size_t colon = device.find(':');
  if (colon == std::string::npos) return {};
  return static_cast<int>(parse_integer(device.substr(colon + 1), "--device"));
}

GpuReport look_at_gpus(const ResourceConfig& config, int local_rank) {
  if (config.device == "cpu") return {{}, "--device cpu"};
  return query_gpus(config.device ? asked_gpu(*config.device).value_or(local_rank) : local_rank);
}

void resolve_device(ResourceConfig& config, const GpuReport& report) {
  using kernels::InstructionSet;
  kernels::use_at_most(config.isa == optim::Isa::scalar ? InstructionSet::baseline
                       : config.isa == optim::Isa::avx2 ? InstructionSet::avx2
                                                        : InstructionSet::best);
  const bool works = std::ranges::any_of(report.gpus, usable) && kernels::missing_gpu_library().empty();
  if (!config.device) config.device = works ? kCuda : "cpu";
  if (!config.precision) config.precision = *config.device == "cpu" ? Precision::fp32 : Precision::bf16;
  const bool tf32 = config.precision == Precision::tf32;
  if (tf32) config.tf32_matmul = config.tf32_conv = true;
  if (!config.tf32_matmul && !config.tf32_conv) return;
  if (*config.device == "cpu")
    throw Error(
        ErrorCode::usage,
        "[--precision] expected --device cuda with tf32, which only GPUs support, got cpu: give --precision fp32 or bf16 on the CPU");
  if (!tf32 && config.precision != Precision::fp32)
    throw Error(ErrorCode::usage,
                "[--precision] expected fp32 or tf32 together with --tf32-matmul or --tf32-conv, got another precision: leave --precision "
                "out, or these two flags");
}

ChosenDevice choose_device(const ResourceConfig& config, const GpuReport& report, const RankPlace& place, bool planning) {
  if (*config.device == "cpu") return {};
  if (planning && report.gpus.empty()) return {Device::cuda(0), "a GPU", "", {}};
  const GpuFacts& gpu = chosen_gpu(*config.device, report, place);
  const std::string name = fmt::format("cuda:{}, {}", gpu.index, gpu.name);
  if (!usable(gpu)) {
    const ErrorCode code = gpu.compute_capability > 0 && gpu.free_bytes > 0 ? ErrorCode::usage : ErrorCode::io;
    throw Error(code,
                fmt::format("[--device] expected {} to be usable, got: {}; give another --device, or --device cpu", name, gpu.problem));
  }
  if (config.precision == Precision::fp8 && !kernels::has_fp8(gpu.compute_capability))
    throw Error(ErrorCode::usage,
                fmt::format("[--precision] expected a GPU with tensor cores for fp8 (compute capability 8.9 or later: Ada, "
                            "Hopper, Blackwell), got {} with {}.{}: give --precision bf16",
                            name, gpu.compute_capability / 10, gpu.compute_capability % 10));
  if (const std::string missing = kernels::missing_gpu_library(); !missing.empty()) throw Error(ErrorCode::usage, missing);
  if (config.attention == Attention::cudnn) {
    const std::string missing = kernels::missing_attention_library(gpu.compute_capability);
    if (!missing.empty()) throw Error(ErrorCode::usage, missing);
  }
  return {Device::cuda(gpu.index), name, gpu.name, std::max<i64>(0, gpu.free_bytes - kGpuReserveBytes)};
}

Budgets gpu_budgets(const MemoryGrant& grant, const ChosenDevice& gpu, std::optional<i64> device_bytes, std::optional<i64> host_bytes) {
  if (!gpu.free_bytes && !device_bytes)
    throw Error(ErrorCode::usage,
                "[--device-memory] expected the size of the GPU's memory, got none, and this node has no GPU to ask: give --device-memory");
  const i64 device_room = gpu.free_bytes.value_or(device_bytes.value_or(0));
  if (device_bytes && *device_bytes > device_room)
    throw Error(ErrorCode::refused,
                fmt::format("[budgets] expected --device-memory of at most {} (the free memory of {} less {}, divided among the ranks that "
                            "share it), got {}: "
                            "lower it, or end other programs on that GPU (nvidia-smi lists them)",
                            format_bytes(device_room), gpu.name, format_bytes(kGpuReserveBytes), format_bytes(*device_bytes)));
  // true: the GPU is in this node; false: the plan is for a GPU of another node, whose memory is unknown
  const bool of_this_node = gpu.free_bytes.has_value();
  if (of_this_node && host_bytes && *host_bytes > grant.bytes)
    throw Error(ErrorCode::refused,
                fmt::format("[budgets] expected --host-memory of at most {}, the memory granted to this process (bounded "
                            "by {}), got {}: lower it, or free memory",
                            format_bytes(grant.bytes), grant.bounded, format_bytes(*host_bytes)));
  return {device_bytes.value_or(device_room), host_bytes.value_or(grant.bytes)};
}

std::string gpu_of_node(const std::string& host_name, const GpuFacts& gpu) { return host_name + " " + gpu.bus + " " + gpu.unique; }

ChosenDevice device_on_ranks(const RanksConfig& config, const Peers& peers) {
  ChosenDevice chosen;
  std::string gpu;
  const auto choose = [&] {
    if (*config.device == "cpu") return;
    const GpuReport report = look_at_gpus(config, peers.place().local_rank);
    chosen = choose_device(config, report, peers.place());
    gpu = gpu_of_node(Peers::host_name(), report.gpus[static_cast<size_t>(chosen.device.index)]);
  };
  peers.together(choose);
  const auto sharers = std::ranges::count(peers.gather(gpu), gpu);
  peers.together(choose);  // the device is chosen again: now that every rank has opened its GPU, the free memory is what all ranks leave
  if (chosen.free_bytes) *chosen.free_bytes /= sharers;
  chosen.meeting = agree_on_meeting(config, {chosen.device, sharers > 1}, peers);
  if (chosen.meeting.nccl && chosen.free_bytes) {
    const i64 least = std::min(kLeastNcclBytes, *chosen.free_bytes / 32);
    *chosen.free_bytes = std::max<i64>(0, *chosen.free_bytes - std::max(least, chosen.meeting.nccl_bytes));
  }
  return chosen;
}

}  // namespace spillway::trainer

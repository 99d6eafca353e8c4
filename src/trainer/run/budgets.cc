#include "trainer/run/budgets.h"

#include "trainer/node/grant.h"

namespace spillway::trainer {

TierBudgets memory_budgets(const ResourceConfig& config, const ChosenDevice& device, int local_ranks, const Host& host) {
  const std::optional<i64>&device_bytes = config.device_memory_bytes, &host_bytes = config.host_memory_bytes;
  if (config.for_any_node && device_bytes && host_bytes) return {.bytes = {*device_bytes, *host_bytes, 0}};
  const MemoryGrant grant = memory_grant(host, local_ranks);
  const bool on_gpu = device.device.is_cuda();
  const Budgets memory = on_gpu ? gpu_budgets(grant, device, device_bytes, host_bytes) : split_grant(grant, device_bytes, host_bytes);
  return {.bytes = {memory.device_bytes, memory.host_bytes, 0}, .host_from_device = !on_gpu && !device_bytes && !host_bytes};
}

void add_nvme(TierBudgets& budgets, const NvmePaths& nvme) {
  budgets.bytes[2] = nvme.tier_bytes();
  budgets.nvme_is_memory = nvme.is_memory;
}

void split_memory(TierBudgets& budgets, const parallel::Plan& plan) {
  if (!budgets.host_from_device) return;
  const i64 on_tmpfs = budgets.nvme_is_memory ? plan.total[2] : 0;
  budgets.bytes = {budgets.bytes[0] - plan.total[1] - on_tmpfs, plan.total[1], budgets.bytes[2]};
}

}  // namespace spillway::trainer

#include "trainer/ranks/on_ranks.h"

#include <optional>
#include <vector>

#include "device/gpu_places.h"
#include "trainer/node/cores.h"
#include "trainer/node/launcher.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/gpu_meeting.h"
#include "trainer/ranks/join.h"
#include "trainer/ranks/rank_threads.h"

namespace spillway::trainer {
namespace {

// Returns the PCI addresses of the GPUs that this node's ranks use, for binding each
// rank to the cores near its GPU. The result is empty if --bind does not need them.
std::vector<std::string> gpus_for(const RanksConfig& config, int local_ranks) {
  if (config.device == "cpu" || config.bind == "none" || (local_ranks == 1 && config.bind != "numa")) return {};
  std::vector<std::string> all = gpu_places();
  const std::optional<int> one = config.device ? asked_gpu(*config.device) : std::nullopt;
  return one && *one < std::ssize(all) ? std::vector{all[static_cast<size_t>(*one)]} : all;
}

}  // namespace

int on_ranks(const RanksConfig& given, Messages& messages, const Host& host, const RankWork& work, const std::function<int()>& start,
             void (*leave)(int status)) {
  const Launcher launcher = detect_launcher(host);
  const auto ranks = static_cast<int>(given.ranks);
  const auto timeout_s = static_cast<double>(given.timeout_s);
  const bool starts_ranks = launcher.name.empty() && ranks > 1;
  if (starts_ranks && given.communicator != "local") return start();
  if (starts_ranks) {
    const std::vector<std::string> gpus = gpus_for(given, ranks);
    return run_rank_threads({.ranks = ranks, .timeout_s = timeout_s, .leave = leave}, messages, [&](int rank, auto end) {
      bind_to_share(given.bind, own_launcher(rank, ranks), host, gpus);
      return work(Peers(std::move(end)));
    });
  }
  keep_nccl_from_hanging(given, launcher, messages);
  // the thread is bound before it starts other threads, which inherit the binding
  bind_to_share(given.bind, launcher, host, gpus_for(given, launcher.local_ranks));
  return work(Peers(join_ranks(launcher, timeout_s, given.rendezvous, host)));
}

}  // namespace spillway::trainer

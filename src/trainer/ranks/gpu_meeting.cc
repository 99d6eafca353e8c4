#include "trainer/ranks/gpu_meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "device/peer_probe.h"
#include "parallel/exchange/nccl_exchange.h"
#include "parallel/program/program.h"
#include "trainer/node/failure.h"
#include "trainer/ranks/leave.h"

namespace spillway::trainer {
namespace {

constexpr const char *kNoPeers = "NCCL_P2P_DISABLE", *kPeerLevel = "NCCL_P2P_LEVEL", *kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr int kLeastConnections = 16;  // the least number of hardware queues: for the working threads, two copy streams and NCCL's streams
static_assert(kLeastConnections >= parallel::kLanes + 2);

bool wants_nccl(const RanksConfig& config) { return config.communicator == "nccl"; }
bool may_have_nccl(const RanksConfig& config) { return wants_nccl(config) || config.communicator == "auto"; }

std::string problem_here(const MeetingPoint& mine) {
  if (!mine.device.is_cuda()) return "a rank computes on the CPU: give --device cuda";
  if (mine.shared) return fmt::format("several ranks share cuda:{}: start as many ranks as there are GPUs", mine.device.index);
  return parallel::nccl_problem();
}

// Returns the problem of the lowest rank that has one, without the tag
// "[nccl]". The text names the rank, unless all ranks have the same problem.
std::string first_problem(const std::string& mine, const Peers& peers) {
  const std::string tag = "[nccl] ";
  const std::vector<std::string> all = peers.gather(mine.starts_with(tag) ? mine.substr(tag.size()) : mine);
  const auto first = std::ranges::find_if(all, [](const std::string& problem) { return !problem.empty(); });
  if (first == all.end()) return "";
  const bool alike = std::ranges::all_of(all, [&](const std::string& problem) { return problem == *first; });
  return alike ? *first : peers.name(static_cast<int>(first - all.begin())) + ": " + *first;
}

// Copies NCCL's peer-to-peer variables to all ranks of a node. Local rank 0 may have set them, or the user may have set them for one rank.
void share_with_node(const Peers& peers) {
  for (const char* name : {kNoPeers, kPeerLevel}) {
    const char* mine = std::getenv(name);
    const std::string told = Peers::host_name() + "=";
    for (const std::string& theirs : peers.gather(told + (mine ? mine : ""))) {
      if (theirs.starts_with(told) && theirs.size() > told.size()) ::setenv(name, theirs.substr(told.size()).c_str(), 0);
    }
  }
}

// Returns why NCCL cannot be used, or an empty text if NCCL works. In the second case `bytes` is set to the GPU memory that NCCL needs.
std::string find_problem(const RanksConfig& config, const MeetingPoint& mine, const Peers& peers, i64& bytes) {
  if (std::string problem = first_problem(problem_here(mine), peers); !problem.empty()) return problem;
  share_with_node(peers);
  // The trial gets half of the timeout. A rank whose trial fails early waits for the other ranks in the next collective, which has the
  // whole timeout.
  const parallel::NcclTrial trial =
      parallel::try_nccl(*peers.communicator(), mine.device.index, static_cast<double>(config.timeout_s) / 2, leave_stuck);
  std::string problem = first_problem(trial.problem, peers);
  const std::vector<i64> most = peers.most({trial.communicator_bytes, trial.pair_bytes});
  bytes = nccl_memory(config, most[0], most[1]);
  return problem;
}

// Prevents deadlocks between ranks. Loading a kernel lazily may wait for all work on the GPU (CUDA Programming Guide,
// "Lazy Loading", on its hazards), and streams that share a hardware queue wait for each other. If that work is a
// collective that waits for another rank, and the other rank waits in the same way, neither rank can ever continue.
void prepare_driver(Messages& messages) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ::setenv(kConnections, "32", 0);
  const char* connections = std::getenv(kConnections);
  if (std::atoi(connections) < kLeastConnections)
    messages.warn(fmt::format(
        "{}={} in the environment makes the streams of a GPU wait for each other, and ranks over NCCL may hang: unset the variable, "
        "or give --communicator local",
        kConnections, connections));
}

std::string through_host_memory(const std::string& why) { return "GPUs communicate through host memory: " + why; }

std::string peers_of_nccl() {
  for (const char* name : {kNoPeers, kPeerLevel}) {
    if (const char* value = std::getenv(name)) return fmt::format(" with {}={}", name, value);
  }
  return "";
}

[[noreturn]] void refuse_nccl(const std::string& problem) {
  throw AgreedError(ErrorCode::usage, "[--communicator] expected GPUs that can communicate over NCCL for nccl, got: " + problem +
                                          "; or leave --communicator out: ranks then communicate through host memory");
}

}  // namespace

// Returns the bytes that NCCL takes on one GPU. A rank has one NCCL communicator that it shares with the data-parallel ranks, which all
// send to each other. For each neighbour in the pipeline, the rank has two more communicators, one for each direction.
i64 nccl_memory(const RanksConfig& config, i64 communicator_bytes, i64 pair_bytes) {
  const i64 stages = config.pipeline_stages, data_ranks = config.ranks / stages;
  const i64 of_data = data_ranks > 1 ? communicator_bytes + (data_ranks - 1) * pair_bytes : 0;
  const i64 directions = std::min<i64>(4, 2 * (stages - 1));
  return of_data + directions * (communicator_bytes + pair_bytes);
}

GpuMeeting agree_on_meeting(const RanksConfig& config, const MeetingPoint& mine, const Peers& peers) {
  GpuMeeting meeting{.timeout_s = static_cast<double>(config.timeout_s)};
  if (peers.ranks() == 1) return meeting;
  const bool any_gpu = peers.most({mine.device.is_cuda()})[0] != 0;
  if (!wants_nccl(config) && !any_gpu) return meeting;
  if (!may_have_nccl(config)) {
    meeting.text = through_host_memory("--communicator " + config.communicator);
    return meeting;
  }
  const std::string problem = find_problem(config, mine, peers, meeting.nccl_bytes);
  meeting.nccl = problem.empty();
  if (!meeting.nccl && wants_nccl(config)) refuse_nccl(problem);
  meeting.text = through_host_memory(problem);
  if (meeting.nccl) meeting.text = fmt::format("GPUs communicate over NCCL {}{}", parallel::nccl_version(), peers_of_nccl());
  return meeting;
}

GpuMeeting expected_meeting(const RanksConfig& config, const Device& device, const GpuReport& report) {
  GpuMeeting meeting{.timeout_s = static_cast<double>(config.timeout_s)};
  if (config.ranks == 1) return meeting;
  if (wants_nccl(config) && !device.is_cuda()) refuse_nccl(problem_here({device, false}));
  const bool one_each = config.ranks <= std::ssize(report.gpus);
  meeting.nccl = wants_nccl(config) || (device.is_cuda() && may_have_nccl(config) && one_each && parallel::nccl_problem().empty());
  return meeting;
}

void keep_nccl_from_hanging(const RanksConfig& config, const Launcher& launcher, Messages& messages) {
  if (launcher.ranks == 1 || !may_have_nccl(config) || config.device == "cpu") return;
  prepare_driver(messages);
  const bool first = launcher.local_rank == 0 && launcher.local_ranks > 1;
  if (!first || std::getenv(kNoPeers) || std::getenv(kPeerLevel)) return;
  const PeerReport report = probe_peers();
  if (report.problem.empty()) return;
  if (report.gpus == 0) throw Error(ErrorCode::io, "[gpu] expected usable GPUs, got: " + report.problem + "; give --device cpu");
  const char *name = report.links_work ? kPeerLevel : kNoPeers, *value = report.links_work ? "NVL" : "1";
  ::setenv(name, value, 0);
  messages.log(fmt::format("{} on this node: Spillway sets {}={}, so NCCL avoids direct copies between GPUs{}", report.problem, name, value,
                           report.links_work ? " except over NVLink" : ""));
}

}  // namespace spillway::trainer

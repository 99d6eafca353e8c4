#include "trainer/ranks/join.h"

#include <charconv>

#include "base/error.h"
#include "base/random.h"
#include "parallel/comm/communicator_mpi_open.h"
#include "parallel/sockets/communicator_sockets.h"
#include "trainer/ranks/rank_report.h"

namespace spillway::trainer {
namespace {

// Returns the rendezvous address for ranks that torchrun started. If torchrun's agent keeps a store at MASTER_PORT, that port is occupied
// and the next port is used.
std::string place_of_torchrun(const Launcher& launcher, const Host& host) {
  const auto name = host.env("MASTER_ADDR"), text = host.env("MASTER_PORT");
  int port = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), port);
  if (!name || port == 0)
    throw Error(ErrorCode::usage,
                "[rendezvous] expected MASTER_ADDR and MASTER_PORT, or --rendezvous tcp:HOST:PORT or file:PATH, got MASTER_ADDR \"" +
                    name.value_or("") + "\", MASTER_PORT \"" + text.value_or("") + "\"");
  // all ranks are on one node, so they meet at a Unix socket
  if (launcher.local_ranks == launcher.ranks) return "unix:spillway-torchrun-" + *text;
  if (host.env("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  return "tcp:" + (name->find(':') == name->npos ? *name : "[" + *name + "]") + ":" + std::to_string(port);
}

// Returns the first host of a Slurm node list: "gpu03" for "gpu[03-05,9],b1".
std::string first_node(const std::string& nodes) {
  const size_t bracket = nodes.find('[');
  if (bracket == nodes.npos || bracket > nodes.find(',')) return nodes.substr(0, nodes.find(','));
  return nodes.substr(0, bracket) + nodes.substr(bracket + 1, nodes.find_first_of(",-]", bracket) - bracket - 1);
}

// Returns the rendezvous address for ranks that srun started. Rank 0 is on the first node of the job
// step. The port is derived from the step's id, so that steps that share a node usually get different
// ports. If two steps get the same port, a rank that reaches the wrong run recognises this by the token.
std::string place_of_srun(const Host& host) {
  const std::string step = host.env("SLURM_JOB_ID").value_or("0") + "." + host.env("SLURM_STEP_ID").value_or("0");
  if (host.env("SLURM_STEP_NUM_NODES").value_or("1") == "1") return "unix:spillway-slurm-" + step;
  // these ports are below the range from which operating systems choose ports by themselves
  constexpr u64 kFirstPort = 20000, kPorts = 10000;
  const u64 port = kFirstPort + RandomKey{}.derive(step).value % kPorts;
  return "tcp:" + first_node(host.env("SLURM_STEP_NODELIST").value_or("localhost")) + ":" + std::to_string(port);
}

// Throws Error(usage) if the rendezvous is at a TCP port and SPILLWAY_TOKEN is not set to a secret. Anyone can connect to a
// TCP port, so ranks must prove that they know the secret. The kernel protects the other kinds of rendezvous from other users.
void check_secret(const Launcher& launcher, const std::string& place, const Host& host) {
  constexpr size_t kLeastDigits = 16;
  if (!place.starts_with("tcp:") || host.env("SPILLWAY_TOKEN").value_or("").size() >= kLeastDigits) return;
  const bool by_hand = launcher.name.empty() || (launcher.name == "torchrun" && !host.env("TORCHELASTIC_RUN_ID"));
  throw Error(
      ErrorCode::usage,
      "[rendezvous] expected a secret that only this run's ranks know, because they meet at " + place +
          ", where anyone can connect: before " + (by_hand ? "the ranks start" : launcher.name + " on every node") +
          ", export SPILLWAY_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n'), run once, and use the same value on all nodes; or let "
          "rank 0 write the secret to a file: --rendezvous file:PATH on a filesystem that all nodes share");
}

// Returns the token that all ranks of this start share. The token includes the restart counts, because
// torchrun restarts ranks under the same run id and Slurm requeues a job under the same job id.
std::string run_token(const Host& host) {
  if (const auto own = host.env("SPILLWAY_TOKEN")) return *own;
  std::string token;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"})
    token += host.env(name).value_or("") + " ";
  return token;
}

}  // namespace

std::string meeting_place(const Launcher& launcher, const std::string& rendezvous, const Host& host) {
  if (rendezvous != "auto" && rendezvous != "env") return rendezvous;
  if (launcher.name == "spillway") return host.env("SPILLWAY_MEETING").value_or("");
  if (launcher.name == "torchrun" || rendezvous == "env") return place_of_torchrun(launcher, host);
  return came_with_mpi(launcher, host) ? "" : place_of_srun(host);
}

std::unique_ptr<parallel::Communicator> join_ranks(const Launcher& launcher, double timeout_s, const std::string& rendezvous,
                                                   const Host& host) {
  if (launcher.ranks == 1) return nullptr;
  report_phase(RankPhase::meeting);
  const std::string place = meeting_place(launcher, rendezvous, host);
  check_secret(launcher, place, host);
  auto made = place.empty()
                  ? parallel::open_mpi_communicator({.timeout_s = timeout_s})
                  : parallel::open_socket_communicator(
                        {.rank = launcher.rank, .size = launcher.ranks, .place = place, .token = run_token(host), .timeout_s = timeout_s});
  report_phase(RankPhase::preparing);
  return made;
}

}  // namespace spillway::trainer

// The way of this process, started as one of several ranks, to its peers.
#pragma once
#include <memory>

#include "app/node/launcher.h"
#include "parallel/comm/communicator.h"

namespace spillway::app {

/// Where the ranks of this launcher meet without MPI, by --rendezvous and the environment; empty: MPI brings them together. Error(usage).
std::string meeting_place(const Launcher& launcher, const std::string& rendezvous, const Host& host = {});

/// This process's end of the group of all ranks; null for one rank. Waits for the others at most this long. Error(usage) where there is no
/// way, Error(peer) naming who did not come.
std::unique_ptr<parallel::Communicator> join_ranks(const Launcher& launcher, double timeout_s, const std::string& rendezvous = "auto",
                                                   const Host& host = {});

}  // namespace spillway::app

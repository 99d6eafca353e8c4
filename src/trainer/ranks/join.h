// Connects this process with the other ranks of its run, if it was started as one of several ranks.
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"
#include "trainer/node/launcher.h"

namespace spillway::trainer {

/// Returns the rendezvous address of the ranks that `launcher` started ("unix:NAME", "tcp:HOST:PORT" or "file:PATH"), from --rendezvous
/// and the environment. The result is empty if MPI connects the ranks. Throws Error(usage) if the environment lacks the address.
std::string meeting_place(const Launcher& launcher, const std::string& rendezvous, const Host& host = {});

/// Returns this process's communicator for the group of all ranks, or null if there is only one rank. Waits at most `timeout_s` seconds
/// for the other ranks. Throws Error(usage) if there is no way to connect, and Error(peer) naming the ranks that did not arrive.
std::unique_ptr<parallel::Communicator> join_ranks(const Launcher& launcher, double timeout_s, const std::string& rendezvous = "auto",
                                                   const Host& host = {});

}  // namespace spillway::trainer

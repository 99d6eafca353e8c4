// How a command or a program that may be one of several ranks becomes them: a launcher's rank, threads of this process, or processes of its
// own.
#pragma once
#include <functional>

#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/node/host.h"
#include "app/ranks/peers.h"

namespace spillway::app {

/// The body of one rank, its exit status.
using RankWork = std::function<int(Console& console, const Peers& peers)>;

/// Runs `work` on the rank that this process is, or on each rank as a thread; or `start`, where no launcher has started the ranks that the
/// flags ask for: it makes processes of them.
int on_ranks(const RanksConfig& given, Console& console, const Host& host, const RankWork& work, const std::function<int()>& start);

}  // namespace spillway::app

// Gives each rank of a command its console: the first rank's console writes, those of the other ranks do not.
#pragma once
#include <functional>

#include "app/console/console.h"
#include "app/names/names.h"
#include "trainer/run/run_on_ranks.h"

namespace spillway::app {

/// Runs `body` on this rank, as trainer::run_on_ranks() does, and returns its status.
int run_on_ranks(const Peers& peers, Console& console, const std::function<int(Console&)>& body);

}  // namespace spillway::app

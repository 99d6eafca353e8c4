// The body of a command that may run as one of several ranks, and how its ranks come to one plan. All ranks make the same calls.
#pragma once
#include <functional>

#include "app/ranks/peers.h"
#include "app/run/session.h"

namespace spillway::app {

/// Runs `body` with a console that is silent on all ranks but the first, and returns its status. What all fail with the first one alone
/// throws: the others return its status. What this rank alone fails with it throws with its name, and the others hear of it.
int run_on_ranks(const Peers& peers, Console& console, const std::function<int(Console&)>& body);

/// The first rank plans, for the smallest budgets of all; the others make their own plans of its choice. Throws AgreedError.
void plan_on_ranks(const Peers& peers, Session& session, const PlanWishes& wishes, const Workload& work);

}  // namespace spillway::app

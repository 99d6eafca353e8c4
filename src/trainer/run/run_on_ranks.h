// Runs the body of a command as one of several ranks, and makes all ranks use the same plan. All ranks make the same calls in the same
// order.
#pragma once
#include <functional>

#include "trainer/ranks/peers.h"
#include "trainer/run/session.h"

namespace spillway::trainer {

/// Runs `body` and returns its status. An error on which all ranks agree (AgreedError) is thrown on
/// the first rank only; the others return its exit status. Any other error of this rank is thrown with the rank's name, and makes the
/// collectives of the other ranks fail with the same message.
int run_on_ranks(const Peers& peers, const std::function<int()>& body);

/// Makes the plans of all ranks. The first rank chooses a plan that fits, for each tier, the smallest budget of any rank, and the other
/// ranks build their own plans from that choice. Throws AgreedError.
void plan_on_ranks(const Peers& peers, Session& session, const PlacementSettings& wishes, const Workload& work);

}  // namespace spillway::trainer

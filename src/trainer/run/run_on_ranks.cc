#include "trainer/run/run_on_ranks.h"

#include "trainer/node/failure.h"

namespace spillway::trainer {

int run_on_ranks(const Peers& peers, const std::function<int()>& body) {
  try {
    return body();
  } catch (const AgreedError& error) {
    if (peers.first()) throw;
    return error.exit_status();
  } catch (...) {
    if (peers.ranks() == 1) throw;
    const Failure failure = failure_of(std::current_exception());
    peers.abort(failure.text);
    throw Error(failure.code, peers.name(peers.rank()) + ": " + failure.text);
  }
}

void plan_on_ranks(const Peers& peers, Session& session, const PlacementSettings& wishes, const Workload& work) {
  std::vector<i64> most;
  for (const i64 bytes : session.budgets().bytes) most.push_back(-bytes);
  most = peers.most(most);
  session.limit({-most[0], -most[1], -most[2]});
  std::string choice;
  peers.together([&] {
    if (!peers.first()) return;
    session.plan(wishes, work);
    choice = session.choice();
  });
  choice = peers.from_first(choice);
  peers.together([&] {
    if (!peers.first()) session.adopt(choice, work);
    session.check_meetings();
  });
}

}  // namespace spillway::trainer

// Runs the communicator's test suite on ranks that are processes. The ranks
// share memory with those of their node and talk to all ranks through sockets.
#include "tests/sockets/ranks.h"

namespace spillway::parallel::test::communicator_sockets_test {
namespace {

std::vector<Group> up_to_all(int fewest) {
  std::vector<Group> groups;
  for (int ranks = fewest; ranks <= all_ranks(); ++ranks) groups.push_back({"Processes" + std::to_string(ranks), ranks, run_here});
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Sockets, CommunicatorOf, testing::ValuesIn(up_to_all(1)), name_of);
INSTANTIATE_TEST_SUITE_P(Sockets, CommunicatorFailureOf, testing::ValuesIn(up_to_all(all_ranks())), name_of);
INSTANTIATE_TEST_SUITE_P(Sockets, SoakCommunicatorOf, testing::ValuesIn(up_to_all(all_ranks())), name_of);

}  // namespace
}  // namespace spillway::parallel::test::communicator_sockets_test

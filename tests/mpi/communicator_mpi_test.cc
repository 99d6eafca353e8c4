// Runs the communicator's test suite on ranks that are the processes of one mpirun. All ranks run the same tests in the same order.
#include <gtest/gtest.h>

#include <cstdlib>

#include "parallel/comm/communicator_mpi_open.h"
#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test::communicator_mpi_test {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

int all_ranks() { return from_environment("OMPI_COMM_WORLD_SIZE", 1); }

// Runs the body on the first `ranks` ranks. The other ranks wait until the body ends.
void run_here(int ranks, double timeout_s, const Body& body) {
  const int ranks_per_node = from_environment("SPILLWAY_TEST_RANKS_PER_NODE", 0);
  auto whole = open_mpi_communicator({.timeout_s = timeout_s, .ranks_per_node = ranks_per_node});
  const int rank = whole->rank();
  if (ranks == whole->size()) return run_rank(rank, std::move(whole), body);
  auto part = whole->split(rank < ranks ? 0 : 1);
  if (rank < ranks) run_rank(rank, std::move(part), body);
}

std::vector<Group> up_to_all(int fewest) {
  std::vector<Group> groups;
  for (int ranks = fewest; ranks <= all_ranks(); ++ranks) groups.push_back({"Processes" + std::to_string(ranks), ranks, run_here});
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorOf, testing::ValuesIn(up_to_all(1)), name_of);
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorFailureOf, testing::ValuesIn(up_to_all(all_ranks())), name_of);
INSTANTIATE_TEST_SUITE_P(Mpi, SoakCommunicatorOf, testing::ValuesIn(up_to_all(all_ranks())), name_of);

}  // namespace
}  // namespace spillway::parallel::test::communicator_mpi_test

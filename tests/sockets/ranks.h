// Runs tests on ranks that are processes of this test program: main() starts them, and each runs the same tests in the same order. The
// values come from environment variables that tests/sockets.cmake sets.
#pragma once
#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test {

int this_rank();
int all_ranks();
/// Returns the rank that is to end during the test; -1 if there is none.
int ending_rank();

/// Connects all ranks by a new rendezvous. The first `ranks` run the body, the others wait for its end.
void run_here(int ranks, double timeout_s, const Body& body);

}  // namespace spillway::parallel::test

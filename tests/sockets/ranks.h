// Runs tests on ranks that are processes of this test program: main() starts them, and each runs the same tests
// in the same order. Environment variables that tests/sockets.cmake sets give the number of ranks and nodes.
#pragma once
#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test {

int this_rank();
int all_ranks();
/// Returns the rank whose process a test ends on purpose, or -1 if there is none.
int ending_rank();

/// Connects all ranks by a new rendezvous. The first `ranks` ranks run the body. The other ranks wait until it ends.
void run_here(int ranks, double timeout_s, const Body& body);

}  // namespace spillway::parallel::test

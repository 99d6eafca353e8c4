// Ranks that are processes of this test program: main() starts them, each runs the same tests in the same order. Values from the
// environment (tests/sockets.cmake).
#pragma once
#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test {

int this_rank();
int all_ranks();
/// The rank that does not live to the end of the test; -1: none.
int ending_rank();

/// One more meeting of all; the first `ranks` run the body, the others wait for the end.
void run_here(int ranks, double timeout_s, const Body& body);

}  // namespace spillway::parallel::test

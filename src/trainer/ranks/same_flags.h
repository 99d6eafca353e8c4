// Checks that all ranks run the same program with the same flags. The check runs before any collective work that depends on them.
#pragma once
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Facts are named values other than flags that must be equal on all ranks too, for example "program" and "checkpoint to go on from".
using Facts = std::vector<NumberKey>;

/// Returns the version of this program and the build id that the linker gave it, under the name "program".
NumberKey this_program();

/// Collective. Compares `flags` (to_json() of this rank's flags) and `facts` across ranks. If they
/// differ, throws AgreedError(usage) on all ranks, naming the first key that differs, its values
/// and the ranks. Flags that concern one node alone may differ: memory, scratch paths and threads.
void check_same_flags(const Peers& peers, const std::string& flags, const Facts& facts);

}  // namespace spillway::trainer

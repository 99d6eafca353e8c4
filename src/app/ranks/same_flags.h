// All ranks were told the same: before anything that only equal ranks can do together.
#pragma once
#include "app/flags/config.h"
#include "app/ranks/peers.h"

namespace spillway::app {

/// What every rank must have alike beside its flags, by name: "program", "checkpoint to go on from".
using Facts = std::vector<NumberKey>;

/// The version of this program and its linker's build id.
NumberKey this_program();

/// `flags`: to_json() of this rank's. Throws AgreedError(usage) on all ranks, naming the first key that differs, its values and the ranks.
/// What concerns one node alone may differ: memory, scratch paths, threads.
void check_same_flags(const Peers& peers, const std::string& flags, const Facts& facts);

}  // namespace spillway::app

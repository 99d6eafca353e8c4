// A rank that gives the others wrong bytes: planted faults that comparisons of bits must see.
#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/collective.h"

namespace spillway::app {

/// Looks at what this rank gives in one collective, and may change it. Called by one thread at a time of each group.
using Spoil = std::function<void(parallel::Collective what, std::span<std::byte> given)>;

/// `end`, and every group split from it, with `spoil` before each collective's bytes leave.
std::unique_ptr<parallel::Communicator> with_fault(std::unique_ptr<parallel::Communicator> end, Spoil spoil);

}  // namespace spillway::app

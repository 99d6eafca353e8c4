// Makes a rank that sends wrong bytes to the others. Tests plant such a fault to show that comparing results bit by bit detects it.
#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/collective.h"

namespace spillway::app {

/// Sees the bytes that a rank contributes to one collective, and may change them. Each communicator calls it from one thread at a time.
using Spoil = std::function<void(parallel::Collective what, std::span<std::byte> given)>;

/// Returns `end` wrapped so that `spoil` sees the bytes of each collective before they are sent. Split communicators are wrapped too.
std::unique_ptr<parallel::Communicator> with_fault(std::unique_ptr<parallel::Communicator> end, Spoil spoil);

}  // namespace spillway::app

// What a scratch path gives right now: a short look before the plan, for a disk that bench did not see, or saw in another mood. Writes a
// nameless file of at most 64 MiB, on the nearest folder that is there. One thread calls.
#pragma once
#include <optional>

#include "app/node/calibration.h"
#include "offload/io_engine.h"

namespace spillway::app {

/// Empty where nothing can be written or there is no room.
std::optional<DiskRates> probe_disk(const std::filesystem::path& path, offload::IoEngine& engine);

}  // namespace spillway::app

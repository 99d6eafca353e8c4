// Formats what `status` shows of a run. Functions without state.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/names/names.h"
#include "trainer/run/run_status.h"

namespace spillway::app {

/// Returns the status as `status --json` prints it.
nlohmann::ordered_json status_json(const RunStatus& status);
std::string status_text(const RunStatus& status);

}  // namespace spillway::app

// What a file of rows (.jsonl) is to a model that trains on it: its first rows, made into tokens and packed as train does it, and counts.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/flags/config.h"
#include "app/node/console.h"

namespace spillway::app {

/// Its tokens are kept as those of evaluate are. `first_rows` holds the text of the first rows. Errors are train's: Error(usage) of flags
/// that do not fit the model, Error(data) of a bad line.
nlohmann::ordered_json describe_rows(const InspectConfig& config, Console& console);

/// `first_rows` of it for a person: what counts in colour, or between ⟦ and ⟧; a line of dashes between documents of a row. Control
/// characters are escaped; a long row is cut.
std::string first_rows_text(const nlohmann::ordered_json& about, const Console& console);

}  // namespace spillway::app

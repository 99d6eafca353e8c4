// Converts the position in a data mixture (data/loader/mixture.h) to JSON and back, for checkpoints and for records on nvme. The functions
// are pure.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "data/loader/mixture.h"

namespace spillway::app {

/// Writes `mixture` under the key "mixture" of `to`. Writes nothing if it is empty.
void put_mixture(nlohmann::json& to, const std::optional<data::MixtureStart>& mixture);
/// Reads the key "mixture" of `from`. Returns nothing if it is missing, as in runs without a mixture and in those of older programs. Throws
/// Error(data) if its value is invalid.
std::optional<data::MixtureStart> mixture_of(const nlohmann::json& from);

}  // namespace spillway::app

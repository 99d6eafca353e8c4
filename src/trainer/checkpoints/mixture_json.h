// Converts the position in a data mixture (data/loader/mixture.h) to JSON and back. Checkpoints
// store this JSON, and so do the states that are kept on nvme. The functions are pure.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "data/loader/mixture.h"

namespace spillway::trainer {

/// Writes `mixture` under the key "mixture" of `to`. Writes nothing if `mixture` is empty.
void put_mixture(nlohmann::json& to, const std::optional<data::MixtureStart>& mixture);
/// Reads the key "mixture" of `from`. Returns nothing if the key is missing, as in runs without
/// a mixture and in those of older programs. Throws Error(data) if the key's value is invalid.
std::optional<data::MixtureStart> mixture_of(const nlohmann::json& from);

}  // namespace spillway::trainer

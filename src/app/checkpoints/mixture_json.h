// Writes and reads where a mixture's sources stand (data/mixture.h), the JSON form that checkpoints and records on nvme keep. The functions
// keep no state.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "data/mixture.h"

namespace spillway::app {

/// As the key `mixture`; nothing where there is none.
void put_mixture(nlohmann::json& to, const std::optional<data::MixtureStart>& mixture);
/// None where the key is missing, as of runs without a mixture and of older programs. Error(data): it is none.
std::optional<data::MixtureStart> mixture_of(const nlohmann::json& from);

}  // namespace spillway::app

// What the readers of config.json share: ceilings, keys that name features not built here, tokens. For config*.cc alone.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "models/config.h"
#include "models/config_json.h"

namespace spillway::models {

// Ceilings far above any published model, low enough that no product of them overflows 64 bits.
constexpr i64 kMaxLayers = 8192, kMaxWidth = i64{1} << 20, kMaxMlpWidth = i64{1} << 22, kMaxVocabulary = i64{1} << 24;
constexpr i64 kMaxExperts = 4096;
constexpr i64 kMaxPositions = i64{1} << 27, kMaxToken = (i64{1} << 31) - 1;

/// Complains about each key that would change the numbers and is not built here, but for those in `known`, which the caller reads.
void refuse_features(const ConfigObject& object, std::span<const std::string_view> known = {});

void read_tokens(const ConfigObject& object, ModelConfig& config, std::optional<i64> begin_default, std::optional<i64> end_default,
                 std::optional<i64> pad_default = {});

/// Complains unless `by` divides `value`.
void require_divisible(const ConfigObject& object, const char* key, i64 value, const char* by_key, i64 by);

/// Rotary positions, in the old style (`rope_theta`, `rope_scaling`) or the new one (`rope_parameters`), or both where they agree. Reads
/// head_dim, positions and windowed layers of the config.
void read_rope(const ConfigObject& object, ModelConfig& config, double theta_default);

/// Mixtures of experts: the features' keys, and what the config says of them. Reads layers and the MLP's width of the config.
std::span<const std::string_view> expert_features();
ExpertsConfig read_experts(const ConfigObject& object, const ModelConfig& config);

/// The family of a `model_type` that is a decoder's, and all such types in words.
std::optional<Family> decoder_family(std::string_view type);
std::string_view decoder_type(Family family);
std::string decoder_types();
ModelConfig parse_decoder(Family family, const ConfigObject& object);

/// Networks for images; and what config_write.cc writes of them.
std::optional<Family> image_family(std::string_view type);
std::string image_types();
ModelConfig parse_image_model(Family family, const ConfigObject& object);
nlohmann::json image_model_json(const ModelConfig& config);

}  // namespace spillway::models

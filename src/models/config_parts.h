// Helpers shared by the readers of config.json: upper limits, keys of features
// that are not implemented, and tokens. Only config*.cc use this header.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "models/config.h"
#include "models/config_json.h"

namespace spillway::models {

// The upper limits of numbers in a config.json: far above any published model, but low enough that no product of them overflows 64 bits.
constexpr i64 kMaxLayers = 8192, kMaxWidth = i64{1} << 20, kMaxMlpWidth = i64{1} << 22, kMaxVocabulary = i64{1} << 24;
constexpr i64 kMaxExperts = 4096;
constexpr i64 kMaxPositions = i64{1} << 27, kMaxToken = (i64{1} << 31) - 1;

/// Throws Error(data) for each key that would change results and is not implemented, except those in `known`, which the caller reads.
void refuse_features(const ConfigObject& object, std::span<const std::string_view> known = {});

/// Reads the begin, end and padding tokens into `config`. The defaults apply to missing keys.
void read_tokens(const ConfigObject& object, ModelConfig& config, std::optional<i64> begin_default, std::optional<i64> end_default,
                 std::optional<i64> pad_default = {});

/// Throws Error(data) about `key` unless its value `value` is a multiple of `by`, the value of the key `by_key`.
void require_divisible(const ConfigObject& object, const char* key, i64 value, const char* by_key, i64 by);

/// Reads the rotary positions in the old style (`rope_theta`, `rope_scaling`) or the new one (`rope_parameters`). Both styles may be
/// present if they agree. Uses head_dim, positions and the family of `config`, so these must be set before.
void read_rope(const ConfigObject& object, ModelConfig& config, double theta_default);

/// expert_features() returns the keys of mixture-of-experts features; read_experts() reads their values.
/// read_experts() uses the family, the number of layers and the MLP width of `config`, so these must be set before.
std::span<const std::string_view> expert_features();
ExpertsConfig read_experts(const ConfigObject& object, const ModelConfig& config);

/// decoder_family() returns the family of a decoder's `model_type`, decoder_type() the reverse, and decoder_types() a list of all such
/// types as text.
std::optional<Family> decoder_family(std::string_view type);
std::string_view decoder_type(Family family);
std::string decoder_types();
ModelConfig parse_decoder(Family family, const ConfigObject& object);

/// The functions for image models map their families to their `model_type` and back, as decoder_family() does for decoders.
/// image_model_json() returns an image model's config.json for config_write.cc.
std::optional<Family> image_family(std::string_view type);
std::string image_types();
ModelConfig parse_image_model(Family family, const ConfigObject& object);
nlohmann::json image_model_json(const ModelConfig& config);

}  // namespace spillway::models

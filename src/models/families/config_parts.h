// Helpers shared by the readers of config.json: upper limits, keys of features that are not implemented, windows, experts, rotary
// positions and tokens. The families' files and the readers of other models use this header.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "models/families/family.h"

namespace spillway::models {

// The upper limits of numbers in a config.json: far above any published model, but low enough that no product of them overflows 64 bits.
constexpr i64 kMaxLayers = 8192, kMaxWidth = i64{1} << 20, kMaxMlpWidth = i64{1} << 22, kMaxVocabulary = i64{1} << 24;
constexpr i64 kMaxExperts = 4096;
constexpr i64 kMaxPositions = i64{1} << 27, kMaxToken = (i64{1} << 31) - 1;

/// Throws Error(data) for each key that would change results and is not implemented, except those in `known`, which the caller reads.
void refuse_features(const ConfigObject& object, std::span<const std::string_view> known = {});

/// Reads the begin, end and padding tokens into `config`. The defaults apply to missing keys.
void read_tokens(const ConfigObject& object, ModelConfig& config, std::optional<i64> begin_default, std::vector<i64> end_default,
                 std::optional<i64> pad_default = {});

/// Throws Error(data) about `key` unless its value `value` is a multiple of `by`, the value of the key `by_key`.
void require_divisible(const ConfigObject& object, const char* key, i64 value, const char* by_key, i64 by);

/// Returns `sliding_window`, the number of positions of an attention window, or 0 if it is null. `otherwise` is for a missing key.
i64 window_of(const ConfigObject& object, std::optional<i64> otherwise);
/// Returns `sliding_window_pattern`: of so many layers in a row the last has no window.
i64 window_period(const ConfigObject& object, i64 otherwise);
/// Reads into `config` which layers have a window of `window` positions: those that `layer_types` names or, without that key, those for
/// which `rule` is true. There are no windows if `window` is 0.
void read_windows(const ConfigObject& object, ModelConfig& config, i64 window, const std::function<bool(i64 layer)>& rule);
/// Writes `sliding_window` and `layer_types`. If no layer has a window, `otherwise` is written: some classes of transformers want a number.
void write_windows(const ModelConfig& config, nlohmann::json& root, std::optional<i64> otherwise = {});

/// Reads from `layer_types` into `config` which layers are `other` instead of attention: those with one of the names or, without that key,
/// those for which `rule` is true.
void read_mixers(const ConfigObject& object, ModelConfig& config, Mixer other, std::initializer_list<std::string_view> names,
                 const std::function<bool(i64 layer)>& rule);
/// Writes `layer_types` with these names of both kinds.
void write_mixers(const ModelConfig& config, nlohmann::json& root, const char* attention, const char* other);
/// Reads and writes the sizes of the layers of Mamba 2 as Granite 4 names them. Uses the width of `config`.
Mamba2Config read_mamba2(const ConfigObject& object, const ModelConfig& config);
void write_mamba2(const ModelConfig& config, nlohmann::json& root);

/// Reads the rotary positions in the old style (`rope_theta`, `rope_scaling`) or the new one (`rope_parameters`). Both styles may be
/// present if they agree. Uses head_dim and positions of `config`, so these must be set before.
void read_rope(const DecoderFamily& family, const ConfigObject& object, ModelConfig& config);
/// Writes the rotary positions in both styles: transformers 5 reads `rope_parameters`; transformers 4 and most other tools read
/// `rope_theta` and `rope_scaling`.
void write_rope(const DecoderFamily& family, const ModelConfig& config, nlohmann::json& root);

/// Holds what transformers assumes for a mixture of experts' missing keys.
struct ExpertDefaults {
  i64 count = 8, chosen = 2;
  i64 width = 0;  // `moe_intermediate_size`; 0 if the family lacks this key and the keys that write_sparse_layers() writes
};
ExpertsConfig read_experts(const ConfigObject& object, const ModelConfig& config, const ExpertDefaults& defaults);
/// Holds what transformers assumes for the missing keys of a mixture of routed and shared experts (DeepSeek-V3, arXiv:2412.19437).
struct RoutedExpertDefaults {
  i64 count = 256, chosen = 8, width = 2048;
  i64 shared = 1, dense = 3;  // `n_shared_experts` and `first_k_dense_replace`
  double factor = 1;          // `routed_scaling_factor`
  i64 groups = 1, chosen_groups = 1;
};
/// Reads experts that sigmoids choose, with a correction and in groups.
ExpertsConfig read_routed_experts(const ConfigObject& object, const ModelConfig& config, const RoutedExpertDefaults& defaults);
/// Returns the layers without experts: the first `first_k_dense_replace`, or `otherwise` without that key.
std::vector<i64> read_first_dense_layers(const ConfigObject& object, const ModelConfig& config, i64 otherwise);
void write_routed_experts(const ModelConfig& config, nlohmann::json& root);
/// Writes what every mixture of experts has.
void write_experts(const ModelConfig& config, nlohmann::json& root);
/// Writes the experts' width, whether their weights add up to 1, and which layers have none.
void write_sparse_layers(const ModelConfig& config, nlohmann::json& root);

}  // namespace spillway::models

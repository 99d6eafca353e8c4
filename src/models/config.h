// Reads and writes config.json of a Hugging Face folder. The command line, the planner and models::build use the ModelConfig that is read,
// and it is written beside exported weights so that other tools can load them. A config.json is untrusted input: the type and range of
// every key are checked, and a feature that would change results but is not implemented is refused by name, never ignored.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "models/families/model_config.h"

namespace spillway::models {

/// Throws Error(usage) if images are too small for the model.
void check_image_side(const ModelConfig& config);

/// Parses the text of a config.json. For a model of several parts, such as an image encoder and a language model, returns the configuration
/// of its language model. Throws Error(data) "[config] FILE: `KEY`: expected …, got …"; `file` is used in the message only.
ModelConfig parse_config(std::string_view json, const std::string& file);
/// Reads config.json in `folder`. Throws Error(data), also when the file is missing.
ModelConfig read_config(const std::filesystem::path& folder);
/// Returns the text of config.json in `folder`, verified by the folder's checksums if it has any. Throws Error(data).
std::string config_text(const std::filesystem::path& folder);
/// Returns the `model_type` of the model of several parts that config.json in `folder` describes, or "" if it describes another model.
/// Throws Error(data) as read_config() does.
std::string type_of_whole(const std::filesystem::path& folder);
/// Returns a config.json that transformers can load and from which parse_config reads an
/// equal configuration. `weights` is the element type of the weights stored beside it; `in_mxfp4` says that those of experts are in MXFP4.
std::string to_json(const ModelConfig& config, DType weights = DType::f32, bool in_mxfp4 = false);

}  // namespace spillway::models

// What `--model` names: a preset, a Hugging Face folder, org/name in the local Hugging Face cache, or (for generate and export) a run
// folder or one of its checkpoints. Nothing is downloaded.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "models/config.h"

namespace spillway::app {

struct ModelSource {
  std::string name;  // for the run folder: the preset, or the folder's last component
  models::ModelConfig config;
  std::optional<std::filesystem::path> folder;  // empty for a preset
  bool has_weights = false;                     // safetensors lie in the folder
  bool made_here = false;  // a checkpoint of ours: where it has no tokenizer it was trained on bytes, or on tokens that others made
  std::optional<std::filesystem::path> tokenizer = {};  // its folder or file; none: bytes
  std::optional<std::string> chat_template = {};        // the text of train's --chat-template, in the place of the tokenizer's own
  std::string reference = {};                           // how another program finds it: org/name, or the folder's whole path
  std::optional<std::filesystem::path> adapter = {};    // a PEFT folder or a checkpoint of adapters, whose weights come beside the folder's
  std::vector<std::string> notes = {};                  // about the folder, to be said once (models/folder_model.h)
};

/// `revision`: of org/name in the cache, a branch, a tag or a commit. Errors: Error(usage) naming the known presets when it is neither;
/// Error(data) from config.json.
ModelSource find_model(const std::string& model, const std::string& revision = "main");

/// As find_model, but a run folder stands for its checkpoint (`which`: last, or a step) and a checkpoint for itself; one of adapters with
/// the base that they were trained beside. Error(data) when a run has no such checkpoint.
ModelSource find_trained_model(const std::string& model, const std::string& which);

}  // namespace spillway::app

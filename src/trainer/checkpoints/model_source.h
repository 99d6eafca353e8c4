// Finds the model that --model names: a preset, a Hugging Face folder, org/name in the local Hugging Face cache, or (for generate and
// export) a run folder or one of its checkpoints. Nothing is downloaded.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "models/config.h"
#include "nn/module.h"

namespace spillway::trainer {

struct ModelSource {
  std::string name;  // the preset, or the last component of the folder's path; part of a run folder's default name
  models::ModelConfig config;
  std::optional<std::filesystem::path> folder;  // empty for a preset
  bool has_weights = false;                     // the folder contains weights
  bool made_here = false;  // the folder is a checkpoint of this program; if it has no tokenizer, it was trained on bytes or token files
  std::optional<std::filesystem::path> tokenizer = {};  // the tokenizer's folder or file; empty: bytes are the tokens
  std::optional<std::string> chat_template = {};  // contents of the template of train's --chat-template, which replaces the tokenizer's own
  std::string reference = {};                     // how other programs find the model: org/name, or the folder's absolute path
  std::optional<std::filesystem::path> adapter = {};  // a PEFT folder or a checkpoint of adapters, whose weights are added to the folder's
  std::vector<std::string> notes = {};                // notes on the folder, to be printed once (models/folder_model.h)
  std::function<nn::Sequential(DType)> own = {};      // builds a model that a program brings itself; `config` is then unused

  /// Returns the model's blocks with weights of type `dtype`, for which no memory is allocated yet.
  nn::Sequential build(DType dtype) const;
};

/// Returns the source of a model that a program builds itself. Throws Error(usage) if the name cannot be part of a file name.
ModelSource own_model(std::string name, std::function<nn::Sequential(DType)> build);

/// Finds a preset, a folder, or org/name in the cache. `revision` is a branch, tag or commit of org/name. Throws Error(usage) if there is
/// no such model (naming the known presets if `model` could be one), and Error(data) for a bad config.json.
ModelSource find_model(const std::string& model, const std::string& revision = "main");

/// Works like find_model, but also takes a run folder or a checkpoint. In a run folder, `which` selects the checkpoint: last, best or a
/// step. For a checkpoint of adapters the result also has the base model with which the adapters were trained. Throws Error(data) if a run
/// has no such checkpoint.
ModelSource find_trained_model(const std::string& model, const std::string& which);

}  // namespace spillway::trainer

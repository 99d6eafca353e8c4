// Finds the model that --model names: a preset, a Hugging Face folder, org/name in the local Hugging Face
// cache, or (for generate and export) a run folder or one of its checkpoints. Nothing is downloaded.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "models/config.h"
#include "nn/module.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

struct ModelSource {
  std::string name;  // name of the preset, or the last component of the folder's path; part of a run folder's default name
  models::ModelConfig config;
  std::optional<std::filesystem::path> folder;  // the model folder; empty for a preset
  bool has_weights = false;                     // true if the folder contains weights
  bool made_here = false;  // true for a checkpoint of this program, which without a tokenizer was trained on bytes or token files
  std::optional<std::filesystem::path> tokenizer = {};  // folder or file of the tokenizer; empty: no tokenizer, each token is a byte
  std::optional<std::string> chat_template = {};        // contents of the file of --chat-template, which replaces the tokenizer's template
  std::string reference = {};                           // how other programs find the model: org/name, or the folder's absolute path
  std::optional<std::filesystem::path> adapter = {};    // PEFT folder or checkpoint of adapters; its weights are added to the folder's
  // The folder of the model of several parts whose language model this is. `export` copies the other parts from it.
  std::optional<std::filesystem::path> whole = {};
  std::vector<std::string> notes = {};            // remarks on the folder, to be printed once (models/folder_model.h)
  std::function<nn::Sequential(DType)> own = {};  // builds a model that a program brings itself; `config` is then unused

  /// Returns the model's blocks with weights of type `dtype`. No memory is allocated for the weights yet.
  nn::Sequential build(DType dtype) const;
};

/// Returns the source of a model that a program builds itself. Throws Error(usage) if the name cannot be part of a file name.
ModelSource own_model(std::string name, std::function<nn::Sequential(DType)> build);

/// Makes the model's linear layers multiply in fp8 if `precision` says so. Must be called before build(). Throws Error(usage) for a model
/// that has no such layers, or of which they are the smaller part, and for base weights in 8 or 4 bits.
void take_precision(Precision precision, ModelSource& source);

/// Finds a preset, a folder, or org/name in the Hugging Face cache. `revision` is a branch, tag or commit of org/name. Throws
/// Error(usage) if there is no such model (naming the known presets if `model` could be one), and Error(data) for a bad config.json.
ModelSource find_model(const std::string& model, const std::string& revision = "main");

/// Finds what find_model() finds, and also a run folder or a checkpoint. In a run folder, `which`
/// selects the checkpoint: last, best or a step. For a checkpoint of adapters the result includes the
/// base model with which the adapters were trained. Throws Error(data) if a run has no such checkpoint.
ModelSource find_trained_model(const std::string& model, const std::string& which);

}  // namespace spillway::trainer

// Determines which model a folder with weights holds: the model of its config.json, corrected
// according to the weights in the folder. Used to build a model from a folder written by other tools.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "models/config.h"

namespace spillway::models {

struct FolderModel {
  ModelConfig config;
  std::string whole;  // the `model_type` of a model of several parts, whose language model `config` is; otherwise empty
  /// Sentences that tell the user what was corrected, renamed or left out in the folder's configuration and weights. Usually the list is
  /// empty.
  std::vector<std::string> notes;
};

/// Reads config.json and, if the folder has weights, their names. If config.json sets `tie_word_embeddings`
/// but the folder holds an lm_head.weight besides the token embedding, the two tensors are compared, a few
/// KiB at a time. If they are equal, the head is tied; if they differ, it is untied, as in transformers 5
/// (PreTrainedModel.tie_weights). Throws Error(data) as read_config() and data::WeightFolder do.
FolderModel read_folder_model(const std::filesystem::path& folder);

}  // namespace spillway::models

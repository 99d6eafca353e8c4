// Which model a folder with weights holds: what its config.json says, corrected by the weights that lie there. For whoever builds the model
// of a folder that others made.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "models/config.h"

namespace spillway::models {

struct FolderModel {
  ModelConfig config;
  /// Sentences for the user about what was corrected, renamed or left out; none in the ordinary case.
  std::vector<std::string> notes;
};

/// Reads config.json and, where the folder has weights, their names. Where config.json says `tie_word_embeddings` and the folder holds an
/// lm_head.weight beside the token embedding, both are compared, a few KiB at a time: equal ones are tied; where they differ the head is
/// untied, as transformers 5 does it (PreTrainedModel.tie_weights). Errors: Error(data) as read_config() and data::WeightFolder.
FolderModel read_folder_model(const std::filesystem::path& folder);

}  // namespace spillway::models

// Reports which numbers will be computed by other rules than before when this program resumes a run that an older program began
// (kNumberRules). Also makes the notes on the model that train prints first. Pure functions, except that they read config.json files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/checkpoints/checkpoint.h"

namespace spillway::trainer {

/// If an older program began the run with an output head that is tied to the embedding, keeps the head tied in `source` and adds a note
/// there. The head must stay tied, because `checkpoint` has no weights and no optimizer state for a separate head. Throws Error(data) if a
/// config.json cannot be read.
void keep_tied_head(const std::filesystem::path& checkpoint, const Progress& progress, ModelSource& source);

/// Returns the notes on the trained model that train prints, a sentence each.
std::vector<std::string> model_notes(const ModelSource& source, const nn::Sequential& model);

/// Returns a sentence for each thing that the coming steps compute by other rules than the steps before. Empty if the run was begun by the
/// rules of this program.
std::vector<std::string> changed_rules(const Progress& progress, const ModelSource& source, const nn::Sequential& model);

}  // namespace spillway::trainer
